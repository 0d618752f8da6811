package kubeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bodyLimit bounds the body of a write in bytes; a Kubernetes API takes 3 MiB.
const bodyLimit = 3 << 20

// Media types of patches.
const (
	plain      = "application/json"
	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
)

// body reads the body of a request in one of the accepted media types.
func body(w http.ResponseWriter, r *http.Request, accepted ...string) (text []byte, media string, refusal *apierrors.StatusError) {
	media = accepted[0]
	if h := r.Header.Get("Content-Type"); h != "" {
		var err error
		if media, _, err = mime.ParseMediaType(h); err != nil {
			media = h
		}
	}
	known := false
	for _, a := range accepted {
		known = known || a == media
	}
	if !known {
		return nil, media, unsupportedMedia(media, accepted)
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, media, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", bodyLimit))
	case err != nil:
		return nil, media, apierrors.NewBadRequest("body: " + err.Error())
	}
	return text, media, nil
}

// object reads an object from the body of a request.
func object(w http.ResponseWriter, r *http.Request, rt route) (Object, *apierrors.StatusError) {
	accepted := []string{plain}
	if rt.resource.Name() == Leases {
		accepted = append(accepted, protobuf)
	}
	text, media, refusal := body(w, r, accepted...)
	if refusal != nil {
		return nil, refusal
	}
	var err error
	if media == protobuf {
		if text, err = fromProtobuf(text, &lease{}); err != nil {
			return nil, malformed(err)
		}
	}
	o, err := decode(text)
	if err != nil {
		return nil, malformed(err)
	}
	return o, nil
}

// post creates an object in a collection.
func (s *Server) post(w http.ResponseWriter, r *http.Request, rt route) {
	if rt.namespace == "" {
		fail(w, apierrors.NewBadRequest("an empty namespace may not be set when a resource name may be created"))
		return
	}
	o, refusal := object(w, r, rt)
	if refusal != nil {
		fail(w, refusal)
		return
	}
	s.locked(w, http.StatusCreated, func() (any, *apierrors.StatusError) { return s.created(rt, o) })
}

// locked runs f with the lock held and answers what it returns without it: a peer may be slow to read.
func (s *Server) locked(w http.ResponseWriter, code int, f func() (any, *apierrors.StatusError)) {
	s.mu.Lock()
	v, refusal := f()
	s.mu.Unlock()
	if refusal != nil {
		fail(w, refusal)
		return
	}
	reply(w, code, v)
}

// created stores a new object as a request asks for it. The lock is held.
func (s *Server) created(rt route, o Object) (any, *apierrors.StatusError) {
	if prefix := o.text("metadata", "generateName"); prefix != "" && o.text("metadata", "name") == "" {
		o.metadata()["name"] = prefix + strconv.FormatInt(s.version+1, 36)
	}
	if err := o.check(rt); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	rt.name = o.text("metadata", "name")
	if s.objects[rt.key()] != nil {
		return nil, apierrors.NewAlreadyExists(rt.resource.groupResource(), rt.name)
	}
	if o.text("metadata", "resourceVersion") != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if rt.resource.Custom {
		delete(o, "status")
	}
	s.create(rt, o)
	return o, nil
}

// put replaces an object, or its status.
func (s *Server) put(w http.ResponseWriter, r *http.Request, rt route) {
	o, refusal := object(w, r, rt)
	if refusal != nil {
		fail(w, refusal)
		return
	}
	s.locked(w, http.StatusOK, func() (any, *apierrors.StatusError) {
		old, refusal := s.existing(rt)
		if refusal != nil {
			return nil, refusal
		}
		return s.update(rt, old, o)
	})
}

// existing is the object that a write is about. The lock is held.
func (s *Server) existing(rt route) (Object, *apierrors.StatusError) {
	if old := s.objects[rt.key()]; old != nil {
		return old, nil
	}
	return nil, apierrors.NewNotFound(rt.resource.groupResource(), rt.name)
}

// patch changes an object, or its status, by a merge patch or a JSON patch.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, rt route) {
	text, media, refusal := body(w, r, mergePatch, jsonPatch)
	if refusal != nil {
		fail(w, refusal)
		return
	}
	s.locked(w, http.StatusOK, func() (any, *apierrors.StatusError) {
		old, refusal := s.existing(rt)
		if refusal != nil {
			return nil, refusal
		}
		o, refusal := patched(old, text, media, rt)
		if refusal != nil {
			return nil, refusal
		}
		return s.update(rt, old, o)
	})
}

func patched(old Object, text []byte, media string, rt route) (Object, *apierrors.StatusError) {
	was, err := json.Marshal(old)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	var is []byte
	if media == jsonPatch {
		p, err := jsonpatch.DecodePatch(text)
		if err != nil {
			return nil, malformed(err)
		}
		if is, err = p.Apply(was); err != nil { // a path that is not there, a test that does not hold
			return nil, invalid(rt, err)
		}
	} else if is, err = jsonpatch.MergePatch(was, text); err != nil {
		return nil, malformed(err)
	}
	o, err := decode(is)
	if err != nil {
		return nil, invalid(rt, err)
	}
	return o, nil
}

// update stores o in place of old if it may, and gives what is stored then. The lock is held.
func (s *Server) update(rt route, old, o Object) (any, *apierrors.StatusError) {
	gr := rt.resource.groupResource()
	if err := o.check(rt); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	version, uid := o.text("metadata", "resourceVersion"), o.text("metadata", "uid")
	switch {
	case version == "" && rt.resource.Custom:
		return nil, invalid(rt, errors.New("metadata.resourceVersion: must be specified for an update"))
	case version != "" && version != old.text("metadata", "resourceVersion"):
		return nil, conflict(gr, rt.name, "the object has been modified; please apply your changes to the latest version and try again")
	case uid != "" && uid != old.text("metadata", "uid"):
		return nil, conflict(gr, rt.name, "Precondition failed: UID in precondition: "+uid+", UID in object meta: "+old.text("metadata", "uid"))
	}
	switch {
	case rt.subresource == "status":
		o = old.with("status", o)
	case rt.resource.Status:
		o = o.with("status", old)
	}
	return s.replace(rt, old, o), nil
}

// with is a copy of o, its metadata included, with one field of another object: an object and its status are written apart.
func (o Object) with(field string, from Object) Object {
	out := maps.Clone(o)
	out["metadata"] = maps.Clone(o.metadata())
	delete(out, field)
	if v, ok := from[field]; ok {
		out[field] = v
	}
	return out
}

// delete removes an object, if the preconditions of the request hold.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, rt route) {
	var o metav1.DeleteOptions
	if r.ContentLength != 0 {
		text, media, refusal := body(w, r, plain, protobuf)
		if refusal != nil {
			fail(w, refusal)
			return
		}
		if media == protobuf {
			var err error
			if text, err = fromProtobuf(text, &deleteOptions{}); err != nil {
				fail(w, malformed(err))
				return
			}
		}
		if err := json.Unmarshal(text, &o); len(strings.TrimSpace(string(text))) > 0 && err != nil {
			fail(w, malformed(err))
			return
		}
	}
	s.locked(w, http.StatusOK, func() (any, *apierrors.StatusError) {
		old, refusal := s.existing(rt)
		if refusal != nil {
			return nil, refusal
		}
		gr, uid, version := rt.resource.groupResource(), old.text("metadata", "uid"), old.text("metadata", "resourceVersion")
		if p := o.Preconditions; p != nil && (p.UID != nil && string(*p.UID) != uid || p.ResourceVersion != nil && *p.ResourceVersion != version) {
			return nil, conflict(gr, rt.name, "Precondition failed: the object is another one, or another version")
		}
		s.remove(rt.key(), old)
		return Object{"kind": "Status", "apiVersion": "v1", "metadata": Object{}, "status": metav1.StatusSuccess,
			"details": Object{"name": rt.name, "group": gr.Group, "kind": gr.Resource, "uid": uid}}, nil
	})
}
