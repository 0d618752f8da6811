package kubeapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// key is an object's place.
type key struct{ resource, namespace, name string }

// event is one change: what was there and what is, nil for nothing.
type event struct {
	version       int64
	key           key
	before, after Object
}

// Put creates the objects, or replaces them as a whole, status included.
func (s *Server) Put(objects ...Object) error {
	for _, given := range objects {
		o, err := clone(given)
		if err != nil {
			return fmt.Errorf("put: %w", err)
		}
		r := find(func(r *Resource) bool { return r.apiVersion() == o.text("apiVersion") && r.Kind == o.text("kind") })
		if r == nil {
			return fmt.Errorf("put %s: there is no resource of kind %q in %q", o.text("metadata", "name"), o.text("kind"), o.text("apiVersion"))
		}
		rt := route{resource: r, namespace: cmp.Or(o.text("metadata", "namespace"), "default"), name: o.text("metadata", "name")}
		if err := o.check(rt); err != nil {
			return fmt.Errorf("put %s: %w", rt.name, err)
		}
		s.mu.Lock()
		if old := s.objects[rt.key()]; old != nil {
			delete(o.metadata(), "resourceVersion")
			s.replace(rt, old, o)
		} else {
			s.create(rt, o)
		}
		s.mu.Unlock()
	}
	return nil
}

// Delete removes an object; it is an error if there is none.
func (s *Server) Delete(resource, namespace, name string) error {
	r := resourceNamed(resource)
	if r == nil {
		return fmt.Errorf("delete: there is no resource %q", resource)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key{resource, namespace, name}
	old := s.objects[k]
	if old == nil {
		return apierrors.NewNotFound(r.groupResource(), name)
	}
	s.remove(k, old)
	return nil
}

// Get is an object as it is now; nil if there is none. It must not be changed.
func (s *Server) Get(resource, namespace, name string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key{resource, namespace, name}]
}

// create stores a new object. The lock is held.
func (s *Server) create(rt route, o Object) {
	m := o.metadata()
	next := s.version + 1
	m["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", next)
	m["creationTimestamp"] = s.clock.Epoch().Add(s.clock.Now()).UTC().Format(time.RFC3339)
	m["generation"] = json.Number("1")
	s.record(event{key: key{rt.resource.Name(), rt.namespace, o.text("metadata", "name")}, after: o})
}

// replace stores o in place of old; what does not change anything is no event. What the server owns is kept. The lock is held.
func (s *Server) replace(rt route, old, o Object) Object {
	m, was := o.metadata(), old.metadata()
	for _, field := range []string{"uid", "creationTimestamp", "generation", "resourceVersion"} {
		m[field] = was[field]
	}
	if reflect.DeepEqual(o, old) {
		return old
	}
	if !reflect.DeepEqual(o["spec"], old["spec"]) {
		n, _ := strconv.ParseInt(fmt.Sprint(was["generation"]), 10, 64)
		m["generation"] = json.Number(strconv.FormatInt(n+1, 10))
	}
	s.record(event{key: rt.key(), before: old, after: o})
	return o
}

// remove takes an object out; its last state is given the version of its end. The lock is held.
func (s *Server) remove(k key, old Object) { s.record(event{key: k, before: old}) }

// record gives an event its version, applies it and wakes the watches. The lock is held.
func (s *Server) record(e event) {
	s.version++
	e.version = s.version
	if e.after != nil {
		e.after.metadata()["resourceVersion"] = strconv.FormatInt(s.version, 10)
		s.objects[e.key] = e.after
	} else {
		delete(s.objects, e.key)
	}
	s.log = append(s.log, e)
	if n := len(s.log) - s.cfg.History; n > 0 {
		s.lost = s.log[n-1].version
		s.log = slices.Clone(s.log[n:])
	}
	ring(&s.bell)
}

// selected are the objects of a collection that sel chooses, by namespace and name. The lock is held.
func (s *Server) selected(sel selection) []Object {
	var keys []key
	for k, o := range s.objects {
		if sel.matches(k, o) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
	out := make([]Object, len(keys))
	for i, k := range keys {
		out[i] = s.objects[k]
	}
	return out
}

// since are the watch events of a selection after a version, and the version up to which they go; expired if they are forgotten. An
// object that comes into a selection is added to it, one that leaves it is deleted from it. The lock is held.
func (s *Server) since(sel selection, from int64) ([]watchEvent, int64, *apierrors.StatusError) {
	if from < s.lost {
		return nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, s.lost))
	}
	at, _ := slices.BinarySearchFunc(s.log, from+1, func(e event, v int64) int { return cmp.Compare(e.version, v) })
	var out []watchEvent
	for _, e := range s.log[at:] {
		was, is := e.before != nil && sel.matches(e.key, e.before), e.after != nil && sel.matches(e.key, e.after)
		switch {
		case is && was:
			out = append(out, watchEvent{"MODIFIED", e.after})
		case is:
			out = append(out, watchEvent{"ADDED", e.after})
		case was:
			out = append(out, watchEvent{"DELETED", e.before.at(e.version)})
		}
	}
	return out, s.version, nil
}

// at is a copy of the object with another version.
func (o Object) at(version int64) Object {
	out := maps.Clone(o)
	m := maps.Clone(o.metadata())
	m["resourceVersion"] = strconv.FormatInt(version, 10)
	out["metadata"] = m
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// conflict is the refusal of a write that is based on another version than the stored one.
func conflict(r schema.GroupResource, name, why string) *apierrors.StatusError {
	return apierrors.NewConflict(r, name, fmt.Errorf("%s", why))
}
