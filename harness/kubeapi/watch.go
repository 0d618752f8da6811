package kubeapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// watchEvent is one line of a watch.
type watchEvent struct {
	Type   string `json:"type"` // ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
	Object any    `json:"object"`
}

// stream is one open watch.
type stream struct {
	resource  *Resource
	cut       <-chan struct{}
	delivered int64 // everything up to this version has been sent; -1 before the first time
}

// watchOptions is what a watch asks for.
type watchOptions struct {
	from      int64
	initial   bool // begin with what is there
	end       bool // mark the end of that by a bookmark
	bookmarks bool
	timeout   time.Duration // 0: none
}

// register reads the options of a watch and counts it in, in one step with what it begins with.
func (s *Server) register(sel selection, q url.Values) (*stream, watchOptions, []watchEvent, *apierrors.StatusError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, refusal := s.options(q)
	if refusal != nil {
		return nil, o, nil, refusal
	}
	var first []watchEvent
	if o.initial {
		for _, obj := range s.selected(sel) {
			first = append(first, watchEvent{"ADDED", obj})
		}
		o.from = s.version
	} else if _, _, refusal = s.since(sel, o.from); refusal != nil {
		return nil, o, nil, refusal
	}
	if o.end && o.bookmarks {
		first = append(first, bookmark(sel.resource, o.from, true))
	}
	st := &stream{resource: sel.resource, cut: s.cut, delivered: -1}
	s.watches[st] = true
	return st, o, first, nil
}

// options reads the parameters of a watch. The lock is held.
func (s *Server) options(q url.Values) (o watchOptions, refusal *apierrors.StatusError) {
	version := q.Get("resourceVersion")
	if o.from, refusal = versionOf(version, s.version); refusal != nil {
		return o, refusal
	}
	o.initial = version == "" || version == "0"
	o.bookmarks = truth(q.Get("allowWatchBookmarks"))
	if text := q.Get("sendInitialEvents"); text != "" {
		if q.Get("resourceVersionMatch") != "NotOlderThan" {
			return o, forbiddenOption("sendInitialEvents is forbidden for watch unless resourceVersionMatch is set to NotOlderThan")
		}
		o.initial, o.end = truth(text), truth(text)
		if !o.initial && o.from == 0 {
			o.from = s.version
		}
	} else if q.Get("resourceVersionMatch") != "" {
		return o, forbiddenOption("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
	}
	if text := q.Get("timeoutSeconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return o, apierrors.NewBadRequest("timeoutSeconds: " + strconv.Quote(text) + " is no number of seconds")
		}
		o.timeout = time.Duration(n) * time.Second
	}
	return o, nil
}

func truth(text string) bool {
	v, _ := strconv.ParseBool(text)
	return v
}

func bookmark(r *Resource, version int64, end bool) watchEvent {
	m := Object{"resourceVersion": strconv.FormatInt(version, 10)}
	if end {
		m["annotations"] = Object{"k8s.io/initial-events-end": "true"}
	}
	return watchEvent{"BOOKMARK", Object{"kind": r.Kind, "apiVersion": r.apiVersion(), "metadata": m}}
}

// watch streams the changes of a collection until its time is up, the peer leaves or the server cuts it.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, rt route) {
	q := r.URL.Query()
	sel, refusal := selectionOf(rt, q)
	if refusal != nil {
		fail(w, refusal)
		return
	}
	st, o, events, refusal := s.register(sel, q)
	if refusal != nil {
		fail(w, refusal)
		return
	}
	defer s.leave(st)
	ctx := r.Context()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	s.follow(ctx, w, st, sel, o, events)
}

// follow sends events as they come, beginning with those given.
func (s *Server) follow(ctx context.Context, w http.ResponseWriter, st *stream, sel selection, o watchOptions, events []watchEvent) {
	out := json.NewEncoder(w)
	send := func(events ...watchEvent) bool {
		for _, e := range events {
			if out.Encode(e) != nil {
				return false
			}
		}
		return http.NewResponseController(w).Flush() == nil
	}
	at := o.from
	tick := s.clock.Timer(s.cfg.BookmarkPeriod)
	defer tick.Stop()
	for {
		if !send(events...) {
			return
		}
		s.sent(st, at)
		s.mu.Lock()
		next, to, refusal := s.since(sel, at)
		bell := s.bell
		s.mu.Unlock()
		if refusal != nil { // a peer that reads too slowly
			status := statusOf(refusal)
			send(watchEvent{"ERROR", status})
			return
		}
		events = next
		if to > at {
			at = to
			continue
		}
		select {
		case <-bell:
		case <-st.cut:
			return
		case <-tick.C:
			if o.bookmarks {
				events = append(events, bookmark(sel.resource, at, false))
			}
			tick.Reset(s.cfg.BookmarkPeriod)
		case <-ctx.Done():
			if o.bookmarks {
				send(bookmark(sel.resource, at, false)) // the next watch resumes from here
			}
			return
		}
	}
}

// sent notes that a watch has delivered everything up to a version.
func (s *Server) sent(st *stream, version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.delivered != version {
		st.delivered = version
		ring(&s.progress)
	}
}

func (s *Server) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, st)
	ring(&s.progress)
}
