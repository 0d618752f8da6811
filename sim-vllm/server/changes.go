package server

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
)

// AdminAPI is the version of the admin API: of its paths and of what they take and give.
const AdminAPI = "weir.sim-admin/v2"

// About is what GET /admin/about shows. NowNs is read as late as possible, for whoever compares clocks.
type About struct {
	API   string `json:"api"`
	Name  string `json:"name"`
	Run   string `json:"run"`   // changes when the server is set up again
	Clock string `json:"clock"` // servers with the same one share their clock
	NowNs int64  `json:"nowNs"`
}

func (s *Server) about() About {
	return About{API: AdminAPI, Name: s.cfg.Name, Run: s.run, Clock: s.cfg.ClockID, NowNs: int64(s.clk.Now())}
}

// Changes is what GET /admin/changes shows: what has changed since a version, and the counts as they are.
type Changes struct {
	Run      string    `json:"run"`
	Version  uint64    `json:"version"`
	Requests []Changed `json:"requests"`
	InFlight int       `json:"inFlight"`
	Scrapes  int64     `json:"scrapes"`
}

// Changed is one record and its place in the order of arrival.
type Changed struct {
	Index  int              `json:"index"`
	Record evidence.Backend `json:"record"`
}

// changesWait is the longest that GET /admin/changes waits for a change.
const changesWait = 30 * time.Second

// changes answers ?after=VERSION&wait=DURATION: at once if there is something newer, else when there is or the wait is over.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		badRequest("%v", fmt.Errorf("%s: after: want a version: %w", r.URL.Path, err)).write(w)
		return
	}
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil || wait < 0 || wait > changesWait {
		badRequest("%s: wait: want a duration of at most %s, got %q", r.URL.Path, changesWait, r.URL.Query().Get("wait")).write(w)
		return
	}
	t := s.clk.Timer(wait)
	defer t.Stop()
	for {
		c, changed := s.since(after)
		if c.Version > after || wait == 0 {
			writeJSON(w, http.StatusOK, c)
			return
		}
		select {
		case <-changed:
		case <-t.C:
			wait = 0
		case <-r.Context().Done():
			return
		case <-s.closing:
			wait = 0
		}
	}
}

// since lists what is newer than a version, and gives a channel that is closed with the next change.
func (s *Server) since(version uint64) (Changes, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Changes{Run: s.run, Version: s.version, Requests: []Changed{}, InFlight: s.inFlight, Scrapes: s.scrapes}
	for i, l := range s.log {
		if l.stamp > version {
			c.Requests = append(c.Requests, Changed{i, l.copied()})
		}
	}
	return c, s.changed
}
