package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/env/embedded"
	"github.com/llm-weir/weir/harness/prom"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/reference/asyncproc"
	"github.com/llm-weir/weir/reference/redisq"
)

// poolName is the name of the router's pool in its metrics.
func (st *stage) poolName() string {
	if st.sys.command() != nil {
		return binary.PoolName
	}
	return referencePool
}

const referencePool = "local"

// batch is the Async Processor in front of the router, with its broker.
type batch struct {
	*env.BatchLog
	broker *embedded.Broker
	client *redis.Client
	prom   *prom.Server
	server *asyncproc.Server
	take   context.CancelFunc
	taken  chan struct{}
}

var _ sut.Batcher = (*stage)(nil)

// startBatch brings the processor up, once the router's door is open.
func (st *stage) startBatch() error {
	c := st.sys.cfg.Batch
	if c == nil {
		return nil
	}
	broker, err := embedded.Start(loopback)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	b := &batch{BatchLog: env.NewBatchLog(st.Clock.Now, st.out, st.Wake), broker: broker, taken: make(chan struct{})}
	close(b.taken) // nobody takes yet
	st.batch = b
	b.client = redisq.AddressClient(b.broker.Addr())
	source := ""
	if c.Prometheus {
		if err := st.startPrometheus(b); err != nil {
			return err
		}
		source = b.prom.URL()
	}
	doc, err := c.Document("redis://"+b.broker.Addr(), st.doors[0].sender.BaseURL, st.poolName())
	if err != nil {
		return err
	}
	st.out.File("processor.json", []byte(doc))
	cfg, err := env.LoadBatch(*c, doc, source)
	if err != nil {
		return err
	}
	b.server, err = asyncproc.Serve(asyncproc.Options{Config: cfg, Clock: clock.NewReal(), Logger: slog.New(slog.DiscardHandler), HTTP: &http.Client{
		Transport: b.Transport(&http.Transport{MaxIdleConnsPerHost: 100})}, Listen: func(int) (net.Listener, error) { return net.Listen("tcp", loopback) }})
	if err != nil {
		return fmt.Errorf("processor: %w", err)
	}
	take, stop := context.WithCancel(st.base)
	b.take, b.taken = stop, make(chan struct{})
	go func() {
		defer close(b.taken)
		for take.Err() == nil {
			if raw, err := redisq.Receive(take, b.client, sut.BatchResults, time.Second); err == nil && raw != nil {
				b.Result(raw)
			}
		}
	}()
	return nil
}

// startPrometheus scrapes the router and the model servers.
func (st *stage) startPrometheus(b *batch) error {
	address := st.router.MetricsAddr()
	if address == "" {
		return &sut.UnsupportedError{Feature: sut.Metrics, Why: "nobody knows the router's metrics page"}
	}
	c := prom.Config{Interval: 100 * time.Millisecond, Addr: loopback, Targets: []prom.Target{{Job: "router", URL: "http://" + address + "/metrics"}}}
	for _, sm := range st.sims {
		c.Targets = append(c.Targets, prom.Target{Job: "model-server", URL: "http://" + sm.addr + "/metrics", Labels: map[string]string{"inference_pool": st.poolName()}})
	}
	var err error
	b.prom, err = prom.Serve(c)
	return err
}

// Enqueue implements sut.Batcher.
func (st *stage) Enqueue(queue string, m sut.AsyncMessage) error {
	if st.batch == nil {
		return errors.New("the configuration has no batch processor")
	}
	now := clock.Wall()
	r := env.BatchRequest(st.scenario, m, now)
	if _, err := redisq.Submit(st.base, st.batch.client, queue, "", r, now); err != nil {
		return err
	}
	st.batch.Submitted(queue, r, now.Add(-st.Clock.Now()))
	return nil
}

// Results implements sut.Batcher.
func (st *stage) Results(ids []string) int {
	if st.batch == nil {
		return 0
	}
	return st.batch.Results(ids)
}

// Tried implements sut.Batcher.
func (st *stage) Tried(ids []string, status int) int {
	if st.batch == nil {
		return 0
	}
	return st.batch.Tried(ids, status)
}

// batchDrain bounds the end of a processor whose scenario is over.
const batchDrain = 100 * time.Millisecond

// stopBatch ends the processor before the door that it knocks at.
func (st *stage) stopBatch() {
	b := st.batch
	if b == nil {
		return
	}
	if b.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), batchDrain)
		_ = b.server.Shutdown(ctx) // what it had is nobody's now
		cancel()
	}
	if b.take != nil {
		b.take()
	}
	<-b.taken
	b.Flush()
	if b.client != nil {
		_ = b.client.Close()
	}
	if b.prom != nil {
		_ = b.prom.Close()
	}
	b.broker.Close()
	st.batch = nil
}
