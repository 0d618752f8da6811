package kubeapi

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selection is which objects of a resource a request is about.
type selection struct {
	route
	labels labels.Selector
	fields fields.Selector
}

// selectionOf reads the selectors of a request.
func selectionOf(rt route, q url.Values) (selection, *apierrors.StatusError) {
	sel := selection{route: rt}
	var err error
	if sel.labels, err = labels.Parse(q.Get("labelSelector")); err != nil {
		return sel, apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	if sel.fields, err = fields.ParseSelector(q.Get("fieldSelector")); err != nil {
		return sel, apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	for _, r := range sel.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" && !slices.Contains(rt.resource.Fields, r.Field) {
			return sel, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
	}
	return sel, nil
}

func (sel selection) matches(k key, o Object) bool {
	if k.resource != sel.resource.Name() || sel.namespace != "" && k.namespace != sel.namespace {
		return false
	}
	set := fields.Set{"metadata.name": k.name, "metadata.namespace": k.namespace}
	for _, f := range sel.resource.Fields {
		set[f] = o.text(strings.Split(f, ".")...)
	}
	return sel.labels.Matches(labels.Set(o.labels())) && sel.fields.Matches(set)
}

// get answers one object.
func (s *Server) get(w http.ResponseWriter, rt route) {
	o := s.Get(rt.resource.Name(), rt.namespace, rt.name)
	if o == nil {
		fail(w, apierrors.NewNotFound(rt.resource.groupResource(), rt.name))
		return
	}
	reply(w, http.StatusOK, o)
}

// list answers a collection. A page of limit objects can be continued until something changes.
func (s *Server) list(w http.ResponseWriter, r *http.Request, rt route) {
	q := r.URL.Query()
	sel, refusal := selectionOf(rt, q)
	if refusal != nil {
		fail(w, refusal)
		return
	}
	s.mu.Lock()
	items, version := s.selected(sel), s.version
	s.mu.Unlock()
	if _, refusal := versionOf(q.Get("resourceVersion"), version); refusal != nil {
		fail(w, refusal)
		return
	}
	items, next, left, refusal := page(items, q, version)
	if refusal != nil {
		fail(w, refusal)
		return
	}
	m := Object{"resourceVersion": strconv.FormatInt(version, 10)}
	if next != "" {
		m["continue"], m["remainingItemCount"] = next, left
	}
	if items == nil {
		items = []Object{}
	}
	reply(w, http.StatusOK, Object{"kind": rt.resource.Kind + "List", "apiVersion": rt.resource.apiVersion(), "metadata": m, "items": items})
}

// page cuts a list as limit and continue ask for. The token names the version of the list and the place in it.
func page(items []Object, q url.Values, version int64) (_ []Object, next string, left int, _ *apierrors.StatusError) {
	from := 0
	if token := q.Get("continue"); token != "" {
		var of int64
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err == nil {
			_, err = fmt.Sscanf(string(raw), "%d/%d", &of, &from)
		}
		switch {
		case err != nil || from < 0:
			return nil, "", 0, apierrors.NewBadRequest("continue key is not valid")
		case of != version || from > len(items):
			return nil, "", 0, apierrors.NewResourceExpired("the continue token has expired: the list has changed")
		}
	}
	items = items[from:]
	limit := 0
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, "", 0, apierrors.NewBadRequest("limit: " + strconv.Quote(text) + " is no number of objects")
		}
		limit = n
	}
	if limit == 0 || len(items) <= limit {
		return items, "", 0, nil
	}
	next = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d/%d", version, from+limit))
	return items[:limit], next, len(items) - limit, nil
}

// versionOf reads a resource version; one that is still to come cannot be served.
func versionOf(text string, newest int64) (int64, *apierrors.StatusError) {
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || v < 0:
		return 0, apierrors.NewBadRequest(fmt.Sprintf("Invalid value: %q: resourceVersion must be a number", text))
	case v > newest:
		return 0, apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", v, newest), 1)
	}
	return v, nil
}
