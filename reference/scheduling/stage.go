package scheduling

import "github.com/llm-weir/weir/reference/flowcontrol"

// decoders keeps the candidates that can decode: those of that role, of both, or without a role. If there is none all are kept, since a
// pool without decode endpoints still has to be served by what it has. Prefill-only candidates are set aside for the other half of
// a split request.
func (s *Scheduler) decoders() {
	s.prefills = s.prefills[:0]
	n := 0
	for i, m := range s.candidates {
		switch m.Role {
		case flowcontrol.RoleDecode, flowcontrol.RoleBoth:
			s.candidates[n], s.candidates[i] = m, s.candidates[n]
			n++
		case flowcontrol.RolePrefill:
			s.prefills = append(s.prefills, m)
		}
	}
	if n > 0 {
		s.candidates = s.candidates[:n]
	}
}

// splits tells whether a request placed on m has its cache filled elsewhere: m only decodes and there are endpoints for the rest. An
// endpoint of both roles fills its own.
func (s *Scheduler) splits(m *flowcontrol.Member) bool {
	return s.stages && m.Role == flowcontrol.RoleDecode && len(s.prefills) > 0
}
