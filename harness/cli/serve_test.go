package cli

import "testing"

func TestPickerFlags(t *testing.T) {
	base := pickerCmd{GRPCAddr: "127.0.0.1:9002", MetricsAddr: "127.0.0.1:9090"}
	for _, c := range []struct {
		says          string
		change        func(*pickerCmd)
		kubeconfig    string // $KUBECONFIG
		fileDiscovery string
		grpc, health  string
		metrics       string
		onGRPC, kube  bool
	}{
		{"nothing said", func(*pickerCmd) {}, "", "", "127.0.0.1:9002", "127.0.0.1:9003", "127.0.0.1:9090", false, false},
		{"ports replace those of the addresses", func(c *pickerCmd) { c.GRPCAddr, c.GRPCPort, c.MetricsPort, c.GRPCHealthPort = "0.0.0.0:1", 2, 3, 4 }, "", "",
			"0.0.0.0:2", "127.0.0.1:4", "127.0.0.1:3", false, false},
		{"with a port of its own and none for health, health is on it", func(c *pickerCmd) { c.GRPCPort = 2 }, "", "",
			"127.0.0.1:2", "127.0.0.1:0", "127.0.0.1:9090", true, false},
		{"a health address is kept", func(c *pickerCmd) { c.GRPCPort, c.HealthAddr = 2, "127.0.0.1:7" }, "", "",
			"127.0.0.1:2", "127.0.0.1:7", "127.0.0.1:9090", false, false},
		{"KUBECONFIG leads to a cluster", func(*pickerCmd) {}, "k", "", "127.0.0.1:9002", "127.0.0.1:9003", "127.0.0.1:9090", false, true},
		{"so does the flag", func(c *pickerCmd) { c.Kubeconfig = "k" }, "", "", "127.0.0.1:9002", "127.0.0.1:9003", "127.0.0.1:9090", false, true},
		{"an endpoints file goes before it", func(c *pickerCmd) { c.EndpointsFile = "e" }, "k", "", "127.0.0.1:9002", "127.0.0.1:9003", "127.0.0.1:9090", false, false},
		{"also one that the document names", func(*pickerCmd) {}, "k", "e", "127.0.0.1:9002", "127.0.0.1:9003", "127.0.0.1:9090", false, false},
	} {
		t.Setenv("KUBECONFIG", c.kubeconfig)
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		got := base
		c.change(&got)
		got.resolve(c.fileDiscovery)
		if got.GRPCAddr != c.grpc || got.HealthAddr != c.health || got.MetricsAddr != c.metrics || got.HealthChecking != c.onGRPC || got.Kube != c.kube {
			t.Errorf("%s: %+v", c.says, got)
		}
	}
}
