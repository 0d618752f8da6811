package loadsync

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// message is a report on its way.
type message struct {
	Replica  string
	Sequence uint64
	Gone     bool // the replica has ended; it has no loads
	Loads    []Load
}

// Limits of what is taken from the server, where others write too.
const (
	maxMessage  = 4 << 20 // bytes
	maxReplicas = 1024
)

// onWire is a message as JSON: loads are address -> [requests, tokens].
type onWire struct {
	Replica  string              `json:"replica"`
	Sequence uint64              `json:"sequence"`
	Gone     bool                `json:"gone,omitempty"`
	Loads    map[string][2]int64 `json:"loads,omitempty"`
}

func (m message) encode() string {
	w := onWire{m.Replica, m.Sequence, m.Gone, map[string][2]int64{}}
	for _, l := range m.Loads {
		w.Loads[l.Address] = [2]int64{int64(l.Requests), l.Tokens}
	}
	text, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("message: %v", err)) // strings and numbers only
	}
	return string(text)
}

// decode reads a message, which may be anybody's.
func decode(text string) (message, error) {
	if len(text) > maxMessage {
		return message{}, fmt.Errorf("message: %d bytes, at most %d are read", len(text), maxMessage)
	}
	var w onWire
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return message{}, fmt.Errorf("message: %w", err)
	}
	m := message{Replica: w.Replica, Sequence: w.Sequence, Gone: w.Gone}
	if w.Replica == "" || w.Sequence == 0 {
		return m, errors.New("message: it lacks replica or sequence")
	}
	for address, counts := range w.Loads {
		if err := m.add(address, counts[0], counts[1]); err != nil {
			return m, err
		}
	}
	m.sort()
	return m, nil
}

// sequenceField is the field of a hash that is no address.
const sequenceField = "sequence"

// fields are a message as the fields of a hash: "sequence", and address -> "requests tokens".
func (m message) fields() []any {
	out := []any{sequenceField, m.Sequence}
	for _, l := range m.Loads {
		out = append(out, l.Address, fmt.Sprintf("%d %d", l.Requests, l.Tokens))
	}
	return out
}

// fromFields reads the hash of a replica.
func fromFields(replica string, fields map[string]string) (message, error) {
	m := message{Replica: replica}
	for name, value := range fields {
		var err error
		if name == sequenceField {
			m.Sequence, err = strconv.ParseUint(value, 10, 64)
		} else {
			a, b, _ := strings.Cut(value, " ")
			requests, err1 := strconv.ParseInt(a, 10, 64)
			tokens, err2 := strconv.ParseInt(b, 10, 64)
			if err = errors.Join(err1, err2); err == nil {
				err = m.add(name, requests, tokens)
			}
		}
		if err != nil {
			return m, fmt.Errorf("hash of replica %s: field %s: %w", replica, name, err)
		}
	}
	if m.Sequence == 0 {
		return m, fmt.Errorf("hash of replica %s: it lacks %s", replica, sequenceField)
	}
	m.sort()
	return m, nil
}

func (m *message) add(address string, requests, tokens int64) error {
	if address == "" || requests < 0 || requests > math.MaxInt32 || tokens < 0 {
		return fmt.Errorf("load %q: %d requests and %d tokens cannot be", address, requests, tokens)
	}
	m.Loads = append(m.Loads, Load{address, int(requests), tokens})
	return nil
}

func (m *message) sort() {
	slices.SortFunc(m.Loads, func(a, b Load) int { return strings.Compare(a.Address, b.Address) })
}
