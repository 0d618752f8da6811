package sut

import "context"

// Deployer is a Stage that stands in front of a deployment. What it notes of a step is for the check "tells".
type Deployer interface {
	// Deploy does what s.Mode says; an error is evidence, not the end of the script.
	Deploy(ctx context.Context, s Step) (note string, err error)
}

// Modes of OpDeploy. Endpoint names a part of the deployment: "picker", "gateway", "model-server", "processor", "redis", "prometheus".
const (
	DeployScale   = "scale"   // to Count pods; returns when that many are ready
	DeployRollout = "rollout" // replace every pod, one after the other; returns at once
	DeployKill    = "kill"    // delete every pod without a grace period; returns at once
	DeploySettle  = "settle"  // wait until every pod of the part is ready, in its newest version, and was made after the step before, and it can be reached; otherwise note evidence.NotBack and why
	DeployCut     = "cut"     // let nobody but the gateway reach the model servers over the network
	DeployMend    = "mend"    // take that back
	DeployAsk     = "ask"     // note what Prometheus answers to the query Raw, once it is Endpoint or Limit is over
	DeployObject  = "object"  // make the objective Endpoint with priority Count; with DeployGone delete it
	DeployEnqueue = "enqueue" // put Count requests into the processor's queue, with ids that begin with Raw
	DeployBacklog = "backlog" // note whether requests wait in the processor's queue: "yes" or "no"
	DeployResults = "results" // take results until there are Count of them, or until Limit; note how many, of how many new ids; with Count 0 all so far
)

// DeployGone is no priority.
const DeployGone = -1 << 31
