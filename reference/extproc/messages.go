package extproc

import (
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/llm-weir/weir/harness/wire"
)

func option(name, value string) *corev3.HeaderValueOption { return rawOption(name, []byte(value)) }

func rawOption(name string, value []byte) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, RawValue: value}}
}

// echo adds the headers that are not the picker's own to set, in their order; of repeated names the value that ReadHeaders has.
func echo(set []*corev3.HeaderValueOption, m *corev3.HeaderMap, skip func(name string) bool) []*corev3.HeaderValueOption {
	left := make(map[string]*corev3.HeaderValue, len(m.GetHeaders())) // those that are not added yet
	for _, kv := range m.GetHeaders() {
		name := strings.ToLower(kv.GetKey())
		if name != wire.HeaderRequestID || left[name] == nil {
			left[name] = kv
		}
	}
	for _, kv := range m.GetHeaders() {
		name := strings.ToLower(kv.GetKey())
		if kv = left[name]; kv == nil {
			continue
		}
		delete(left, name)
		if systemOwned(name) || (skip != nil && skip(name)) {
			continue
		}
		value := kv.GetRawValue()
		if len(value) == 0 {
			value = []byte(kv.GetValue())
		}
		set = append(set, rawOption(name, value))
	}
	return set
}

// Destination is the value of the destination header: the addresses best first.
func Destination(addresses []string) string { return strings.Join(addresses, ",") }

// RequestHeadersResponse answers the request's headers with its destination: first the destination header, then the length of the
// body if there is one, then the request's own headers (spec/endpoint-picker.md §1.3). received may be nil. remove names headers that
// the model server is not to see.
func RequestHeadersResponse(destination string, bodyBytes int, received *corev3.HeaderMap, remove []string) *extprocv3.ProcessingResponse {
	set := make([]*corev3.HeaderValueOption, 0, len(received.GetHeaders())+2)
	set = append(set, option(wire.HeaderDestination, destination))
	if bodyBytes > 0 {
		set = append(set, option("Content-Length", strconv.Itoa(bodyBytes)))
	}
	set = echo(set, received, func(name string) bool { return slices.Contains(remove, name) })
	return &extprocv3.ProcessingResponse{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: set, RemoveHeaders: remove}},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			wire.MetadataLB: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				wire.HeaderDestination: structpb.NewStringValue(destination),
			}}),
		}},
	}
}

// streamed is one chunk of a body in full-duplex mode.
func streamed(chunk []byte, eos bool) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{Body: chunk, EndOfStream: eos}},
	}}}
}

// chunks cuts body into pieces of at most wire.BodyByteLimit bytes. An empty body is one empty piece if it ends the stream.
func chunks(body []byte, eos bool, each func(piece []byte, eos bool)) {
	for len(body) > wire.BodyByteLimit {
		each(body[:wire.BodyByteLimit], false)
		body = body[wire.BodyByteLimit:]
	}
	if len(body) > 0 || eos {
		each(body, eos)
	}
}

// RequestBodyResponses forwards the whole request body; only the last chunk ends the stream, and that only if no trailers do.
func RequestBodyResponses(body []byte, eos bool) []*extprocv3.ProcessingResponse {
	var out []*extprocv3.ProcessingResponse
	chunks(body, eos, func(piece []byte, eos bool) {
		out = append(out, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: streamed(piece, eos)}})
	})
	return out
}

// RequestTrailersResponse answers request trailers without changing them.
func RequestTrailersResponse() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{
		HeaderMutation: &extprocv3.HeaderMutation{},
	}}}
}

// ResponseBodyResponses answers one chunk of the response body. An empty chunk that ends nothing is still
// answered, so that a data plane that counts answers goes on.
func ResponseBodyResponses(body []byte, eos bool) []*extprocv3.ProcessingResponse {
	var out []*extprocv3.ProcessingResponse
	add := func(piece []byte, eos bool) {
		out = append(out, &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: streamed(piece, eos)}})
	}
	if chunks(body, eos, add); len(out) == 0 {
		add(nil, false)
	}
	return out
}

// ResponseHeadersResponse answers the response's headers with a mark and an echo. Names that occur more than once, such as
// set-cookie, are left out of the echo: setting them would fold several values into one. The length of a body that will change is
// removed.
func ResponseHeadersResponse(received *corev3.HeaderMap, changes bool) *extprocv3.ProcessingResponse {
	count := make(map[string]int, len(received.GetHeaders()))
	for _, kv := range received.GetHeaders() {
		count[strings.ToLower(kv.GetKey())]++
	}
	set := []*corev3.HeaderValueOption{option("x-went-into-resp-headers", "true")}
	set = echo(set, received, func(name string) bool { return count[name] > 1 })
	var remove []string
	if changes {
		remove = []string{"content-length"}
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: set, RemoveHeaders: remove}},
	}}}
}

// ResponseTrailersResponse answers response trailers without changing them.
func ResponseTrailersResponse() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{
		HeaderMutation: &extprocv3.HeaderMutation{},
	}}}
}

// Immediate is a refusal as the data plane is told to send it; the reason header is set only if there is a reason (§1.6).
func Immediate(r wire.Refusal) *extprocv3.ProcessingResponse {
	im := &extprocv3.ImmediateResponse{Status: &typev3.HttpStatus{Code: typev3.StatusCode(r.Status)}, Body: []byte(r.Body)}
	if r.Reason != "" {
		im.Headers = &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{option(wire.HeaderDroppedReason, r.Reason)}}
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: im}}
}

// Subset reads the subset hint of a message: present tells whether there is a list, which may be empty. Entries that are no strings
// are skipped; a value that is no list is no hint (spec/endpoint-picker.md §1.4).
func Subset(m *corev3.Metadata) (addresses []string, present bool) {
	v, ok := m.GetFilterMetadata()[wire.MetadataSubset].GetFields()[wire.KeySubset]
	if !ok {
		return nil, false
	}
	list, ok := v.GetKind().(*structpb.Value_ListValue)
	if !ok {
		return nil, false
	}
	addresses = []string{}
	for _, e := range list.ListValue.GetValues() {
		if s, ok := e.GetKind().(*structpb.Value_StringValue); ok {
			addresses = append(addresses, s.StringValue)
		}
	}
	return addresses, true
}
