package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/llm-weir/weir/harness/clock"
)

const (
	allowedTTL = 10 * time.Second
	refusedTTL = 5 * time.Second
	// answersKept bounds what is remembered of each kind.
	answersKept = 256
	// reviewTimeout bounds the questions about one request; a scraper waits 10 s by default.
	reviewTimeout = 5 * time.Second
	// reviewQPS and reviewBurst bound the questions, whoever sends how many tokens.
	reviewQPS, reviewBurst = 10, 20
	// complaintPeriod is the least time between two log lines about an API that does not answer.
	complaintPeriod = 10 * time.Second
)

var (
	tokenReviews  = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "tokenreviews"}
	accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "subjectaccessreviews"}
)

// ReviewConfig says which API a Reviewer asks.
type ReviewConfig struct {
	Kubeconfig string       // file; "": $KUBECONFIG, the home directory's, else the pod's service account
	UserAgent  string       // "": weir
	Logger     *slog.Logger // nil: slog.Default
	Clock      clock.Clock  // nil: the machine's
}

// Reviewer lets the API judge who reads a page that is not its own: a TokenReview tells whose the token is, a SubjectAccessReview
// whether they may get the path. Answers are remembered for some seconds, failures are not.
type Reviewer struct {
	client dynamic.Interface
	log    *slog.Logger
	clock  clock.Clock

	mu sync.Mutex
	// allowed and refused are bounded apart, so that made-up tokens never push out a good one.
	allowed, refused answers
	complained       time.Duration // when the log was last told of a failure
	everComplained   bool
}

// NewReviewer connects to nothing yet; it fails if the configuration leads to no API.
func NewReviewer(cfg ReviewConfig) (*Reviewer, error) {
	rc, err := restConfig(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return newReviewer(cfg, rc)
}

func newReviewer(cfg ReviewConfig, rc *rest.Config) (*Reviewer, error) {
	rc = rest.CopyConfig(rc)
	rc.UserAgent, rc.QPS, rc.Burst = cmp.Or(cfg.UserAgent, "weir"), reviewQPS, reviewBurst
	client, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.NewReal()
	}
	return &Reviewer{client: client, log: cfg.Logger, clock: cfg.Clock, allowed: answers{}, refused: answers{}}, nil
}

// AllowRequest is Allow for the token and the path of a request.
func (r *Reviewer) AllowRequest(q *http.Request) (status int, why string) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(q.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	return r.Allow(q.Context(), strings.TrimSpace(token), q.URL.Path)
}

// Allow tells whether the holder of a bearer token may get path: 200, or 401 for no token or one that is not valid, 403 for a user who
// may not, 503 if the API could not be asked; why is for the one who asked.
func (r *Reviewer) Allow(ctx context.Context, bearer, path string) (status int, why string) {
	if bearer == "" {
		return http.StatusUnauthorized, "authentication is required: send Authorization: Bearer TOKEN"
	}
	key := sha256.Sum256([]byte(path + "\x00" + bearer)) // no tokens in memory
	if a, ok := r.recall(key); ok {
		return a.status, a.why
	}
	try, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	a, err := r.review(try, bearer, path)
	if err != nil {
		return http.StatusServiceUnavailable, r.complain(ctx, err)
	}
	r.keep(key, a)
	return a.status, a.why
}

// review asks the API.
func (r *Reviewer) review(ctx context.Context, bearer, path string) (verdict, error) {
	token, err := r.ask(ctx, tokenReviews, "TokenReview", map[string]any{"token": bearer})
	if err != nil {
		return verdict{}, err
	}
	known, _, err := get[bool](token, "authenticated")
	if err != nil {
		return verdict{}, fmt.Errorf("malformed TokenReview: %w", err)
	}
	if !known {
		return verdict{status: http.StatusUnauthorized, why: "the token is not valid"}, nil
	}
	name, _, err := get[string](token, "user", "username")
	if err != nil || name == "" {
		return verdict{}, errors.Join(errors.New("malformed TokenReview: a valid token of nobody"), err)
	}
	// Every verb of HTTP would get the same page, so the one asked for is always get.
	spec := map[string]any{"user": name, "nonResourceAttributes": map[string]any{"path": path, "verb": "get"}}
	user, _, err := get[map[string]any](token, "user")
	if err != nil {
		return verdict{}, fmt.Errorf("malformed TokenReview: %w", err)
	}
	for _, field := range []string{"uid", "groups", "extra"} {
		if v, ok := user[field]; ok && v != nil {
			spec[field] = v
		}
	}
	access, err := r.ask(ctx, accessReviews, "SubjectAccessReview", spec)
	if err != nil {
		return verdict{}, err
	}
	allowed, _, err := get[bool](access, "allowed")
	denied, _, err2 := get[bool](access, "denied")
	if err := errors.Join(err, err2); err != nil {
		return verdict{}, fmt.Errorf("malformed SubjectAccessReview: %w", err)
	}
	if !allowed || denied {
		return verdict{status: http.StatusForbidden,
			why: fmt.Sprintf("%s may not get %s: a ClusterRole with nonResourceURLs [%q] and verbs [\"get\"], bound to it, allows that", name, path, path)}, nil
	}
	return verdict{status: http.StatusOK}, nil
}

// ask creates a review, which the API answers at once and does not store.
func (r *Reviewer) ask(ctx context.Context, resource schema.GroupVersionResource, kind string, spec map[string]any) (map[string]any, error) {
	q := &unstructured.Unstructured{Object: map[string]any{"apiVersion": resource.GroupVersion().String(), "kind": kind, "spec": spec}}
	a, err := r.client.Resource(resource).Create(ctx, q, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", resource.Resource, err)
	}
	status, _, err := get[map[string]any](a.Object, "status")
	if err != nil {
		return nil, fmt.Errorf("malformed %s: %w", kind, err)
	}
	return status, nil
}

// complain logs a failure and says as much of it as somebody may know who has not been let in.
func (r *Reviewer) complain(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "the request was given up" // nobody reads this, and the API is not to blame
	}
	why := "the Kubernetes API could not be asked whether the token is good; the log says why"
	switch {
	case apierrors.IsForbidden(err):
		why = "this process may not ask the Kubernetes API about tokens: bind its service account to the ClusterRole system:auth-delegator"
	case apierrors.IsUnauthorized(err):
		why = "the Kubernetes API does not accept this process's own credentials"
	case errors.Is(err, context.DeadlineExceeded):
		why = fmt.Sprintf("the Kubernetes API did not say within %v whether the token is good", reviewTimeout)
	}
	r.mu.Lock()
	now := r.clock.Now()
	tell := !r.everComplained || now-r.complained >= complaintPeriod
	if tell {
		r.everComplained, r.complained = true, now
	}
	r.mu.Unlock()
	if tell {
		r.log.Warn("a request was refused: "+why, "error", err)
	}
	return why
}

// verdict is what came of a review.
type verdict struct {
	status int
	why    string
	until  time.Duration
}

// answers are verdicts by the hash of token and path.
type answers map[[sha256.Size]byte]verdict

func (r *Reviewer) recall(key [sha256.Size]byte) (verdict, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for _, kind := range []answers{r.allowed, r.refused} {
		if a, ok := kind[key]; ok && now < a.until {
			return a, true
		}
	}
	return verdict{}, false
}

func (r *Reviewer) keep(key [sha256.Size]byte, a verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	// The newer answer replaces one of the other kind.
	kind, other, ttl := r.refused, r.allowed, refusedTTL
	if a.status == http.StatusOK {
		kind, other, ttl = r.allowed, r.refused, allowedTTL
	}
	delete(other, key)
	if _, ok := kind[key]; !ok && len(kind) >= answersKept {
		kind.makeRoom(now)
	}
	a.until = now + ttl
	kind[key] = a
}

// makeRoom forgets what is over, or else the answer that is over next.
func (m answers) makeRoom(now time.Duration) {
	var next [sha256.Size]byte
	first := time.Duration(-1)
	for key, a := range m {
		if a.until <= now {
			delete(m, key)
		} else if first < 0 || a.until < first {
			next, first = key, a.until
		}
	}
	if len(m) >= answersKept {
		delete(m, next)
	}
}
