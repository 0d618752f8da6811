package async

import (
	s "github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
)

// The probes and the metrics of processor p.
const (
	alive   = "http://127.0.0.1:$HEALTH_PORT/healthz"
	ready   = "http://127.0.0.1:$HEALTH_PORT/readyz"
	metrics = "http://127.0.0.1:$METRICS_PORT/metrics"
)

// healthScenarios are those of AP-HEALTH and AP-TLS.
var healthScenarios = []s.Scenario{
	play("probes", "alive as long as it runs, ready as long as it can work", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Get("up-alive", alive, "", 0)
		a.Get("up-ready", ready, "", 0)
		a.Broker("down", "down")
		a.Get("down-ready", ready, "503", 0)
		a.Get("down-alive", alive, "", 0)
		a.Broker("up-again", "up")
		a.Get("again-ready", ready, "200", 0)
		a.Hold()
		a.Submit("in", "q", s.Message("m"))
		a.Held("held", 1, 0)
		a.Signal("term", "TERM")
		a.Get("draining-ready", ready, "503", 3*sec)
		a.Answer()
		a.Release("free", 0)
		a.Ended("ended", 0)
		a.Check("AP-HEALTH-01", "async-details", want{Details: map[string]string{"up-alive": "200", "up-ready": "200"}}, "up")
		a.Check("AP-HEALTH-01", "async-details", want{Details: map[string]string{"down-ready": "503", "down-alive": "200", "again-ready": "200"}}, "up", "down")
		// A port that is closed already is not ready either.
		a.Check("AP-HEALTH-01", "async-unready", want{Names: []string{"draining-ready"}}, "up", "again-ready", "held", "ended")
	}),
	play("metrics-access", "the metrics want authentication unless they are opened", func(a *script) {
		guarded := s.Setup(s.Transport(s.Queue("q")))
		guarded.Without = []string{"--metrics-endpoint-auth"}
		a.Start("up", guarded)
		a.Get("anonymous", metrics, "", 0)
		a.StartOther("up2", "p2", s.Setup(s.Transport(s.Queue("r")), "--metrics-endpoint-auth=false"))
		a.Do(step{Op: sut.AsyncGet, Mark: "open", Who: "p2", Text: metrics})
		a.Check("AP-HEALTH-02", "async-details", want{Details: map[string]string{"anonymous": "!200"}}, "up", "up2")
		a.Check("AP-HEALTH-02", "async-details", want{Details: map[string]string{"anonymous": "!no answer"}}, "up", "up2")
		a.Check("AP-HEALTH-02", "async-details", want{Details: map[string]string{"open": "200"}}, "up", "up2")
	}),
	play("broker-comes-later", "a broker that is not there yet", func(a *script) {
		a.Listen(s.ResultList)
		a.Broker("down", "down")
		a.Do(step{Op: sut.AsyncStart, Mark: "up", Mode: "alive", Setup: s.Setup(s.Transport(s.Queue("q")))})
		a.Submit("in", "q", s.Message("m"))
		a.Quiet("alone", 5*sec)
		a.Get("not-ready", ready, "503", 0)
		a.Broker("up-at-last", "up")
		a.Get("ready", ready, "200", 20*sec)
		a.Results("done", 1, 20*sec)
		a.Check("AP-HEALTH-03", "async-stays", want{Names: []string{"up"}}, "down")
		a.Check("AP-HEALTH-03", "async-details", want{Details: map[string]string{"ready": "200"}}, "down", "up", "alone", "not-ready")
		a.Check("AP-HEALTH-03", "async-results", want{Status: 200}, "down", "up", "in", "alone", "not-ready")
	}),
	play("broken-broker", "a broker that closes every connection is not flooded", func(a *script) {
		a.Serve(s.Setup(s.Transport(s.Queue("q"))))
		a.Submit("before-in", "q", s.Message("before"))
		a.Results("before", 1, 0, "before")
		a.Broker("broken", "broken")
		a.Get("noticed", ready, "503", 0)
		a.Look("begin", ":accepted", ":cpu")
		a.Quiet("outage", 30*sec)
		a.Look("over", ":accepted", ":cpu")
		a.Broker("up-again", "up")
		a.Submit("after-in", "q", s.Message("after"))
		a.Results("after", 1, 20*sec, "after")
		// Ten polls a second and ten looks for retries, each repeated a few times by an ordinary client, stay below a hundred.
		a.Check("AP-HEALTH-04", "async-growth", want{From: "begin", To: "over", Names: []string{":accepted"}, High: 100}, "up", "before", "noticed", "outage")
		a.Check("AP-HEALTH-04", "async-growth", want{From: "begin", To: "over", Names: []string{":cpu"}, High: 200}, "up", "before", "noticed", "outage")
		a.Check("AP-HEALTH-04", "async-results", want{Status: 200}, "up", "before", "noticed", "outage")
	}),
	play("tls", "the certificate of an upstream", func(a *script) {
		to := func(name, url string, flags ...string) *sut.AsyncSetup {
			return s.Setup(s.Transport(s.Queue(name).With(doc{"igw_base_url": url})), flags...)
		}
		a.Serve(to("trusting", "$TLS_a", "--tls-ca-cert", "$CA"))
		a.StartOther("up2", "p2", to("doubting", "$TLS_a"))
		a.StartOther("up3", "p3", to("careless", "$TLS_a", "--tls-insecure-skip-verify"))
		a.StartOther("up4", "p4", to("known", "$MTLS_a", "--tls-ca-cert", "$CA", "--tls-cert", "$CERT", "--tls-key", "$KEY"))
		for _, name := range []string{"trusting", "careless", "known"} {
			a.Submit(name+"-in", name, s.Message(name))
		}
		a.Submit("doubting-in", "doubting", s.Message("doubting", s.Due(4*sec)))
		a.Size("refused", "least", 1, ":handshakes")
		a.Results("done", 4, 15*sec)
		a.Try("tried", s.Case("pair", to("other", "$MTLS_a", "--tls-cert", "$CERT", "--tls-key", "$KEY")),
			s.Case("cert-alone", to("other", "$MTLS_a", "--tls-cert", "$CERT")), s.Case("key-alone", to("other", "$MTLS_a", "--tls-key", "$KEY")))
		a.Check("AP-TLS-01", "async-results", want{IDs: []string{"trusting"}, Status: 200}, "up", "trusting-in")
		a.Check("AP-TLS-01", "async-attempts", want{Attempts: []attempt{{ID: "trusting", Name: ":upstream", Value: "tlsa"}}}, "up", "done")
		for _, id := range []string{"AP-TLS-01", "AP-TLS-03"} {
			a.Check(id, "async-arrivals", want{IDs: []string{"doubting"}}, "up2", "doubting-in", "refused", "done")
			a.Check(id, "async-results", want{IDs: []string{"doubting"}, Codes: []string{"INFERENCE_ERROR", "DEADLINE_EXCEEDED"}}, "up2", "doubting-in")
		}
		a.Check("AP-TLS-03", "async-results", want{IDs: []string{"careless"}, Status: 200}, "up3", "careless-in")
		a.Check("AP-TLS-02", "async-attempts", want{Attempts: []attempt{{ID: "known", Name: ":peer", Value: "processor"}, {ID: "known", Name: ":upstream", Value: "mtlsa"}}}, "up4", "known-in", "done")
		a.Check("AP-TLS-02", "async-results", want{IDs: []string{"known"}, Status: 200}, "up4", "known-in")
		a.Check("AP-TLS-02", "async-starts", want{Valid: []string{"pair"}, Cases: map[string]string{"cert-alone": "", "key-alone": ""}}, "tried")
	}),
}
