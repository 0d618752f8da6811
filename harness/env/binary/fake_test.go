package binary

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/epconfig"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/picker"
)

// The test program is also the picker that the tests start: as "fake MODE" it is the reference with a bad habit.
func TestMain(m *testing.M) {
	if len(os.Args) > 8 && os.Args[1] == "fake" {
		os.Exit(fake(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6], os.Args[7], os.Args[8]))
	}
	os.Exit(m.Run())
}

// Fake is the command of the picker with a bad habit.
func Fake(mode string) Command {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	c, err := Parse("'" + exe + "' fake " + mode + " {{.Config}} {{.GRPCPort}} {{.HealthPort}} {{.MetricsPort}} {{.EndpointsFile}} {{.ObjectivesFile}}")
	if err != nil {
		panic(err)
	}
	return c
}

func fake(mode, config, grpcPort, healthPort, metricsPort, endpoints, objectives string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch mode {
	case "ports": // says which it has, in one write, and ends with its input
		var all []string
		for range 70 {
			p, err := FreePort()
			if err != nil {
				return 1
			}
			all = append(all, strconv.Itoa(p))
		}
		fmt.Println(strings.Join(all, " "))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "exits":
		fmt.Println("no licence found")
		return 7
	case "silent":
		<-ctx.Done()
		return 0
	case "late":
		clock.Sleep(ctx, 700*time.Millisecond)
	case "floods":
		out := bufio.NewWriter(os.Stdout)
		for i := range 300_000 {
			fmt.Fprintf(out, "line %06d %s\n", i, strings.Repeat("x", 50))
		}
		out.Flush()
	case "daemon": // leaves another behind, in a session of its own, which keeps the ports
		args := append([]string{}, os.Args[1:]...)
		args[1] = "stubborn"
		child := exec.Command(os.Args[0], args...)
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		<-ctx.Done()
		return 0
	}
	return serve(ctx, mode, config, grpcPort, healthPort, metricsPort, endpoints, objectives)
}

func serve(ctx context.Context, mode, config, grpcPort, healthPort, metricsPort, endpoints, objectives string) int {
	refuse := func(err error) int { fmt.Fprintln(os.Stderr, "refused:", err); return 2 }
	contract, err := epconfig.ContractNamed("llm-d-router-2026-09")
	if err != nil {
		return refuse(err)
	}
	doc, err := os.ReadFile(config)
	if err != nil {
		return refuse(err)
	}
	if mode == "modest" && strings.Contains(string(doc), "holdback") {
		return refuse(errors.New("holdback is beyond me"))
	}
	cfg, err := epconfig.Load("config.yaml", doc, contract)
	if err != nil {
		return refuse(err)
	}
	m, err := picker.New(cfg.Picker)
	if err != nil {
		return refuse(err)
	}
	o := epp.Options{Wiring: epp.DefaultWiring(m, contract), Config: cfg, PoolName: "fake", GRPCAddr: net.JoinHostPort("127.0.0.1", grpcPort),
		HealthAddr: net.JoinHostPort("127.0.0.1", healthPort), MetricsAddr: net.JoinHostPort("127.0.0.1", metricsPort), EndpointsFile: endpoints, ObjectivesFile: objectives}
	switch mode {
	case "crashes":
		o.OnDecision = func(d epp.Decision) {
			fmt.Println("segmentation fault, or so")
			os.Exit(3)
		}
	case "unhealthy":
		o.Readiness.Synced = func() bool { return false }
	case "health-elsewhere": // on the ext_proc port, although a port of its own was given to it
		o.HealthOnGRPC, o.HealthAddr = true, "127.0.0.1:0"
	case "tls":
		o.Secure = true
	case "no-health":
		o.HealthAddr = "127.0.0.1:0"
	}
	s, err := epp.Serve(o)
	if err != nil {
		return refuse(err)
	}
	fmt.Println("serving")
	<-ctx.Done()
	if mode == "stubborn" {
		select {}
	}
	if err := s.Shutdown(context.Background()); err != nil {
		return refuse(err)
	}
	return 0
}

// Marked names the processes in whose environment a variable has a value.
func Marked(variable, value string) []string {
	var names []string
	for _, s := range marked(variable, value) {
		names = append(names, s.name)
	}
	return names
}
