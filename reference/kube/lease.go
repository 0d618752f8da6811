package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/llm-weir/weir/harness/clock"
)

// elector holds a Lease, or waits for it. It is written here because client-go's own brings the typed clients of every API group
// along: 725 packages to compile instead of 336.
//
// A holder counts as dead when its record has not changed for as long as the record promises, on this machine's monotonic clock: the
// clocks of the replicas are never compared. A leader stops leading RenewDeadline after its last good renewal, which is earlier.
type elector struct {
	w      *Watcher
	leases dynamic.ResourceInterface

	seen   string        // holder and renewal last seen
	seenAt time.Duration // when it changed
}

func newElector(w *Watcher) *elector {
	return &elector{w: w, leases: w.client.Resource(leaseResource).Namespace(w.cfg.Namespace)}
}

// run takes part until ctx ends, then gives the Lease back.
func (e *elector) run(ctx context.Context) {
	cfg := e.w.cfg
	var renewed time.Duration // start of the last good try
	leading := false
	set := func(v bool) {
		if v == leading {
			return
		}
		leading = v
		e.w.leading.Store(v)
		cfg.Logger.Info("leader election", "leading", v, "identity", cfg.Identity, "lease", cfg.LeaseName)
		if cfg.OnLeading != nil {
			cfg.OnLeading(v)
		}
	}
	for {
		start := cfg.Clock.Now()
		limit := cfg.RenewDeadline
		if leading {
			limit = renewed + cfg.RenewDeadline - start // a call that hangs must not outlast the deadline
		}
		try, cancel := context.WithTimeout(ctx, limit)
		held, err := e.try(try)
		cancel()
		if err != nil && ctx.Err() == nil {
			e.w.failed("lease "+cfg.LeaseName, err)
		}
		switch {
		case held:
			renewed = start
			set(true)
		case err == nil || cfg.Clock.Now()-renewed >= cfg.RenewDeadline:
			set(false)
		}
		pause := cfg.RetryPeriod
		if leading {
			pause = min(pause, renewed+cfg.RenewDeadline-cfg.Clock.Now())
		}
		if !clock.Sleep(ctx, pause) {
			break
		}
	}
	if leading {
		set(false)
		e.release(context.WithoutCancel(ctx))
	}
}

// try takes or renews the Lease once; false without an error if another holds it.
func (e *elector) try(ctx context.Context) (bool, error) {
	cfg := e.w.cfg
	lease, err := e.leases.Get(ctx, cfg.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": map[string]any{"name": cfg.LeaseName, "namespace": cfg.Namespace},
			"spec":     e.spec(map[string]any{}, ""),
		}}
		_, err = e.leases.Create(ctx, lease, metav1.CreateOptions{})
		return err == nil, err
	}
	if err != nil {
		return false, err
	}
	spec, _, err := get[map[string]any](lease.Object, "spec")
	holder, _, err2 := get[string](spec, "holderIdentity")
	renewal, _, err3 := get[string](spec, "renewTime")
	seconds, _, err4 := get[int64](spec, "leaseDurationSeconds")
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return false, fmt.Errorf("malformed: %w", err)
	}
	if record := holder + " " + renewal; record != e.seen {
		e.seen, e.seenAt = record, cfg.Clock.Now()
	}
	alive := cfg.Clock.Now()-e.seenAt < time.Duration(seconds)*time.Second
	if holder != "" && holder != cfg.Identity && alive {
		return false, nil
	}
	lease.Object["spec"] = e.spec(spec, holder)
	_, err = e.leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err == nil, err
}

// spec is the Lease's content with this replica as the holder.
func (e *elector) spec(old map[string]any, holder string) map[string]any {
	const micro = "2006-01-02T15:04:05.000000Z07:00"
	now := clock.Wall().UTC().Format(micro)
	out := map[string]any{}
	for k, v := range old {
		out[k] = v
	}
	out["holderIdentity"], out["renewTime"] = e.w.cfg.Identity, now
	out["leaseDurationSeconds"] = int64((e.w.cfg.LeaseDuration + time.Second - 1) / time.Second)
	if holder != e.w.cfg.Identity {
		out["acquireTime"] = now
		n, _, _ := get[int64](old, "leaseTransitions")
		if holder != "" || len(old) > 0 {
			n++
		}
		out["leaseTransitions"] = n
	}
	return out
}

// release lets another replica lead at once.
func (e *elector) release(ctx context.Context) {
	cfg := e.w.cfg
	ctx, cancel := context.WithTimeout(ctx, cfg.RetryPeriod)
	defer cancel()
	lease, err := e.leases.Get(ctx, cfg.LeaseName, metav1.GetOptions{})
	if err == nil {
		spec, _, _ := get[map[string]any](lease.Object, "spec")
		if holder, _, _ := get[string](spec, "holderIdentity"); holder != cfg.Identity {
			return
		}
		spec["holderIdentity"], spec["leaseDurationSeconds"] = "", int64(1)
		_, err = e.leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		e.w.failed("release of lease "+cfg.LeaseName, err)
	}
}
