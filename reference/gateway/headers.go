package gateway

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"sort"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/llm-weir/weir/harness/wire"
)

// hopByHop are the headers of one connection; they are neither processed nor forwarded.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Proxy-Authenticate", "Proxy-Authorization"}

// endToEnd copies h without the headers of the connection, named ones included.
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	return out
}

// headerMap renders headers as Envoy does: pseudo headers first, names in lower case, values raw. The order of the rest is by name.
func headerMap(pseudo [][2]string, h http.Header) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	add := func(name, value string) {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	for _, p := range pseudo {
		add(p[0], p[1])
	}
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		for _, v := range h[name] {
			add(strings.ToLower(name), v)
		}
	}
	return m
}

// mutate applies a header mutation. Pseudo headers and the length are the gateway's own business and left out; a value without an
// append action replaces what is there, as ext_proc has it.
func mutate(h http.Header, m *extprocv3.HeaderMutation) {
	for _, name := range m.GetRemoveHeaders() {
		if !ours(name) {
			h.Del(name)
		}
	}
	for _, o := range m.GetSetHeaders() {
		name, value := o.GetHeader().GetKey(), headerText(o)
		if name == "" || ours(name) || strings.ContainsAny(value, "\r\n\x00") {
			continue
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		_, present := h[name]
		switch {
		case o.GetAppend().GetValue():
			h.Add(name, value)
		case o.GetAppendAction() == corev3.HeaderValueOption_ADD_IF_ABSENT && present,
			o.GetAppendAction() == corev3.HeaderValueOption_OVERWRITE_IF_EXISTS && !present:
		default:
			h.Set(name, value)
		}
	}
}

func ours(name string) bool {
	return strings.HasPrefix(name, ":") || strings.EqualFold(name, "content-length") || strings.EqualFold(name, "host") ||
		slices.Contains(hopByHop, textproto.CanonicalMIMEHeaderKey(name))
}

func headerText(o *corev3.HeaderValueOption) string {
	if raw := o.GetHeader().GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return o.GetHeader().GetValue()
}

// mutated is the value that a mutation gives to a header, "" if none.
func mutated(m *extprocv3.HeaderMutation, name string) string {
	for _, o := range m.GetSetHeaders() {
		if strings.EqualFold(o.GetHeader().GetKey(), name) {
			return headerText(o)
		}
	}
	return ""
}

// metadataDestination is the destination in dynamic metadata.
func metadataDestination(s *structpb.Struct) string {
	return s.GetFields()[wire.MetadataLB].GetStructValue().GetFields()[wire.HeaderDestination].GetStringValue()
}

// subsetMetadata is the metadata of a route that restricts the pool; nil without the client's wish.
func subsetMetadata(h http.Header) *corev3.Metadata {
	lines, present := h[textproto.CanonicalMIMEHeaderKey(wire.HeaderSubset)]
	if !present {
		return nil
	}
	list := &structpb.ListValue{}
	for _, line := range lines {
		for a := range strings.SplitSeq(line, ",") {
			if a = strings.TrimSpace(a); a != "" {
				list.Values = append(list.Values, structpb.NewStringValue(a))
			}
		}
	}
	return metadata(wire.MetadataSubset, wire.KeySubset, structpb.NewListValue(list))
}

// servedMetadata tells the picker which endpoint answered.
func servedMetadata(address string) *corev3.Metadata {
	return metadata(wire.MetadataLB, wire.HeaderDestinationServed, structpb.NewStringValue(address))
}

func metadata(namespace, key string, v *structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: {Fields: map[string]*structpb.Value{key: v}}}}
}

// destinations splits a destination list, best first.
func destinations(s string) []string {
	var out []string
	for a := range strings.SplitSeq(s, ",") {
		if a = strings.TrimSpace(a); a != "" {
			out = append(out, a)
		}
	}
	return out
}

// newRequestID is a random UUID.
func newRequestID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
