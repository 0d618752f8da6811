package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	rt, ok := s.route(r.URL.Path)
	verb := verbOf(r, rt, ok)
	s.mu.Lock()
	if _, known := s.calls[verb]; known || len(s.calls) < 1000 { // a peer that asks for nonsense must not fill the memory
		s.calls[verb]++
	}
	down := s.down
	s.mu.Unlock()
	switch {
	case down:
		fail(w, apierrors.NewServiceUnavailable("the API is switched off"))
	case !ok:
		s.discover(w, r)
	case r.URL.Query().Get("dryRun") != "":
		fail(w, apierrors.NewBadRequest("dryRun is not supported"))
	case rt.name == "":
		s.collection(w, r, rt)
	default:
		s.object(w, r, rt)
	}
}

func verbOf(r *http.Request, rt route, ok bool) string {
	verb := strings.ToLower(r.Method)
	switch {
	case !ok:
		return verb + " " + r.URL.Path
	case verb == "get" && truth(r.URL.Query().Get("watch")):
		verb = "watch"
	case verb == "get" && rt.name == "":
		verb = "list"
	}
	return verb + " " + rt.resource.Name()
}

func (s *Server) collection(w http.ResponseWriter, r *http.Request, rt route) {
	switch {
	case r.Method == http.MethodGet && truth(r.URL.Query().Get("watch")):
		s.watch(w, r, rt)
	case r.Method == http.MethodGet:
		s.list(w, r, rt)
	case r.Method == http.MethodPost:
		s.post(w, r, rt)
	default:
		notAllowed(w, r, rt)
	}
}

func (s *Server) object(w http.ResponseWriter, r *http.Request, rt route) {
	switch {
	case r.Method == http.MethodGet:
		s.get(w, rt)
	case r.Method == http.MethodPut:
		s.put(w, r, rt)
	case r.Method == http.MethodPatch:
		s.patch(w, r, rt)
	case r.Method == http.MethodDelete && rt.subresource == "":
		s.delete(w, r, rt)
	default:
		notAllowed(w, r, rt)
	}
}

func notAllowed(w http.ResponseWriter, r *http.Request, rt route) {
	fail(w, apierrors.NewMethodNotSupported(rt.resource.groupResource(), strings.ToLower(r.Method)))
}

func unsupportedMedia(media string, accepted []string) *apierrors.StatusError {
	e := apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "", "", 0, true)
	e.ErrStatus.Message = fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s (got %s)", strings.Join(accepted, ", "), media)
	return e
}

func malformed(err error) *apierrors.StatusError {
	return apierrors.NewBadRequest("the object provided is unrecognized: " + err.Error())
}

func invalid(rt route, err error) *apierrors.StatusError {
	e := apierrors.NewInvalid(schema.GroupKind{Group: rt.resource.Group, Kind: rt.resource.Kind}, rt.name, nil)
	e.ErrStatus.Message += err.Error()
	return e
}

// forbiddenOption refuses a combination of the parameters of a list or watch.
func forbiddenOption(why string) *apierrors.StatusError {
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "",
		field.ErrorList{field.Forbidden(field.NewPath("resourceVersionMatch"), why)})
}

// statusOf is the object that tells a client of a refusal.
func statusOf(e *apierrors.StatusError) metav1.Status {
	st := e.Status()
	st.Kind, st.APIVersion = "Status", "v1"
	return st
}

func fail(w http.ResponseWriter, e *apierrors.StatusError) {
	st := statusOf(e)
	reply(w, int(st.Code), st)
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a peer that has left needs no answer
}
