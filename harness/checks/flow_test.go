package checks_test

import (
	"slices"
	"time"

	"github.com/llm-weir/weir/harness/checks"
	"github.com/llm-weir/weir/harness/evidence"
)

// crowd is three at once under a limit of two: one of them waits.
func crowd() *hist {
	return history().served("p1", 0, 1, 100).served("p2", 0, 2, 200).served("p3", 0, 100, 300)
}

var peakSpec = checks.Spec{Count: 2, Needed: 2}

// halves are two requests that were left before they were complete, and one that is served afterwards.
func halves() *hist {
	return history().left("h1", 0, 100).left("h2", 0, 110).served("later", 200, 201, 210)
}

var unseenSpec = checks.Spec{IDs: []string{"h1", "h2"}}

func spreadOut() *hist {
	return history().served("s1", 0, 1, 10).served("s2", 0, 1, 10).served("s3", 0, 1, 10).b("s3", func(b *evidence.Backend) { b.Endpoint = "b" })
}

var spreadSpec = checks.Spec{IDs: []string{"s1", "s2", "s3"}, Count: 2}

// stream is one of ten tokens that are produced every 30 ms and arrive at the instants given.
func stream(tokens ...int) *hist {
	h := history().served("t", 0, 1, 380)
	h.b("t", func(b *evidence.Backend) { b.FirstToken, b.End = at(100), at(370) })
	return h.c("t", func(c *evidence.Client) {
		for _, ms := range tokens {
			c.TokenTimes = append(c.TokenTimes, at(ms))
		}
	})
}

func steady() *hist { return stream(101, 131, 161, 191, 221, 251, 281, 311, 341, 371) }

var streamSpec = checks.Spec{IDs: []string{"t"}, Needed: 10, Min: 200 * time.Millisecond, Within: 50 * time.Millisecond}

var flowTrials = []trial{
	{"peak", "passing", "three want two places, and two at once have them", peakSpec, crowd(), pass},
	{"peak", "failing", "three at once", peakSpec, crowd().b("p3", arrivesAt(99)), fail},
	{"peak", "failing", "a request that no client sent takes the place", peakSpec, crowd().backend("stranger", "b", 50, 60, evidence.Finished), fail},
	{"peak", "failing", "one is at two model servers", peakSpec, crowd().backend("p1", "b", 50, 60, evidence.Aborted), fail},
	{"peak", "failing", "one never leaves", peakSpec, crowd().b("p1", func(b *evidence.Backend) { b.Ending, b.End = evidence.Running, evidence.Never }), fail},
	{"peak", "degenerate", "a record of a model server is lost", peakSpec, crowd().b("p3", arrivesAt(99)).unseen("p1"), inconclusive},
	{"peak", "degenerate", "the lost record is of a stream that broke off", peakSpec, crowd().b("p3", arrivesAt(99)).unseen("p1").c("p1", func(c *evidence.Client) { c.Outcome = evidence.KilledMidStream }), inconclusive},
	{"peak", "degenerate", "a record without an arrival", peakSpec, crowd().b("p3", arrivesNever), inconclusive},
	{"peak", "degenerate", "a record that ends before it begins", peakSpec, crowd().b("p3", func(b *evidence.Backend) { b.Arrival, b.End = at(99), at(50) }), inconclusive},
	{"peak", "degenerate", "one ended at no instant", peakSpec, crowd().b("p3", func(b *evidence.Backend) { b.End = evidence.Never }), inconclusive},
	{"peak", "degenerate", "never more wanted in than may", peakSpec, history().served("p1", 0, 1, 100).served("p2", 0, 2, 99).served("p3", 100, 101, 300), inconclusive},
	{"peak", "degenerate", "the third is the same request twice", peakSpec, crowd().unsent("p3").served("p1", 0, 100, 300).unseen("p3"), inconclusive},
	{"peak", "degenerate", "two client records of one request are no demand", peakSpec, history().served("p1", 0, 1, 100).served("p2", 0, 2, 200).client("p2", 0, 200, evidence.Completed, 200, ""), inconclusive},
	{"peak", "degenerate", "too few ran at once", checks.Spec{Count: 2, Needed: 3}, crowd(), inconclusive},
	{"peak", "degenerate", "no client recorded anything", peakSpec, crowd().unsent("p1").unsent("p2").unsent("p3"), inconclusive},
	{"peak", "degenerate", "all were sent at no instant", peakSpec, crowd().c("p1", sentNever).c("p2", sentNever).c("p3", sentNever), inconclusive},
	{"peak", "degenerate", "a limit of nothing", checks.Spec{Needed: 2}, history().client("p1", 0, 0, evidence.Unfinished, 0, ""), inconclusive},

	{"unseen", "passing", "both leave, and no model server knows them", unseenSpec, halves(), pass},
	{"unseen", "failing", "one was dispatched", unseenSpec, halves().backend("h2", "a", 50, 110, evidence.Aborted), fail},
	{"unseen", "failing", "one was dispatched long after it was left", unseenSpec, halves().backend("h2", "a", 900, 910, evidence.Finished), fail},
	{"unseen", "failing", "a model server knows one, at no instant", unseenSpec, halves().backend("h2", "a", 50, 110, evidence.Aborted).b("h2", arrivesNever), fail},
	{"unseen", "degenerate", "one was refused", unseenSpec, halves().c("h2", func(c *evidence.Client) { c.Outcome = evidence.Refused }), inconclusive},
	{"unseen", "degenerate", "one was not sent", unseenSpec, halves().c("h1", sentNever), inconclusive},
	{"unseen", "degenerate", "one has no client record", unseenSpec, halves().unsent("h1"), inconclusive},
	{"unseen", "degenerate", "one was left at no instant", unseenSpec, halves().c("h1", endsNever), inconclusive},
	{"unseen", "degenerate", "the model servers recorded nothing", unseenSpec, halves().unseen("later"), inconclusive},
	{"unseen", "degenerate", "the model servers recorded nothing any more when they had left", unseenSpec, halves().b("later", arrivesAt(105)), inconclusive},
	{"unseen", "degenerate", "the other arrival has no instant", unseenSpec, halves().b("later", arrivesNever), inconclusive},
	{"unseen", "degenerate", "no ids", checks.Spec{}, halves(), inconclusive},

	{"spread", "passing", "two endpoints for three requests", spreadSpec, spreadOut(), pass},
	{"spread", "failing", "all at one endpoint", spreadSpec, spreadOut().b("s3", func(b *evidence.Backend) { b.Endpoint = "a" }), fail},
	{"spread", "failing", "fewer than asked for", checks.Spec{IDs: spreadSpec.IDs, Count: 3}, spreadOut(), fail},
	{"spread", "failing", "one was not served", spreadSpec, spreadOut().unseen("s1"), fail},
	{"spread", "failing", "a second arrival elsewhere is no spread", spreadSpec, spreadOut().b("s3", func(b *evidence.Backend) { b.Endpoint = "a" }).backend("s3", "b", 5, 9, evidence.Finished), fail},
	{"spread", "degenerate", "a record without an arrival", spreadSpec, spreadOut().b("s1", arrivesNever), fail},
	{"spread", "degenerate", "no client sent one of them", spreadSpec, spreadOut().unsent("s3"), inconclusive},
	{"spread", "degenerate", "one was sent at no instant", spreadSpec, spreadOut().c("s3", sentNever), inconclusive},
	{"spread", "degenerate", "an endpoint without a name", spreadSpec, spreadOut().b("s3", func(b *evidence.Backend) { b.Endpoint = "" }), inconclusive},
	{"spread", "degenerate", "one endpoint is no spread", checks.Spec{IDs: spreadSpec.IDs, Count: 1}, spreadOut(), inconclusive},
	{"spread", "degenerate", "no ids", checks.Spec{Count: 2}, spreadOut(), inconclusive},

	{"prompt-stream", "passing", "a token every 30 ms", streamSpec, steady(), pass},
	{"prompt-stream", "passing", "two tokens in one packet now and then", streamSpec, stream(101, 131, 131, 191, 221, 221, 281, 311, 341, 371), pass},
	{"prompt-stream", "passing", "in pairs, as the model server sent them", streamSpec, stream(101, 101, 161, 161, 221, 221, 281, 281, 371, 371).b("t", func(b *evidence.Backend) { b.Writes = 5 }), pass},
	{"prompt-stream", "passing", "with the pause of the model server", streamSpec, stream(101, 131, 161, 191, 301, 311, 321, 341, 361, 371).b("t", func(b *evidence.Backend) { b.Writes, b.Pause = 10, at(110) }), pass},
	{"prompt-stream", "failing", "in fewer parts than the model server sent", streamSpec, stream(101, 101, 101, 101, 171, 171, 171, 261, 261, 371).b("t", func(b *evidence.Backend) { b.Writes = 10 }), fail},
	{"prompt-stream", "degenerate", "the model server sent all at once", streamSpec, steady().b("t", func(b *evidence.Backend) { b.Writes = 1 }), inconclusive},
	{"prompt-stream", "failing", "all at the end", streamSpec, stream(370, 370, 370, 370, 370, 370, 370, 370, 371, 371), fail},
	{"prompt-stream", "failing", "all at one instant, in time", streamSpec, stream(101, 101, 101, 101, 101, 101, 101, 101, 101, 101), fail},
	{"prompt-stream", "failing", "the first in time, the others at the end", streamSpec, stream(101, 371, 371, 371, 371, 371, 371, 371, 371, 371), fail},
	{"prompt-stream", "failing", "in two lots", streamSpec, stream(101, 102, 103, 104, 105, 367, 368, 369, 370, 371), fail},
	{"prompt-stream", "failing", "in three lots, each of one packet", streamSpec, stream(101, 101, 101, 191, 191, 191, 191, 281, 281, 281), fail},
	{"prompt-stream", "failing", "the first too late", streamSpec, stream(151, 181, 191, 201, 221, 251, 281, 311, 341, 371), fail},
	{"prompt-stream", "failing", "the last too late", streamSpec, stream(101, 131, 161, 191, 221, 251, 281, 341, 381, 421), fail},
	{"prompt-stream", "failing", "out of order", streamSpec, stream(101, 131, 161, 191, 251, 221, 281, 311, 341, 371), fail},
	{"prompt-stream", "failing", "one is missing", streamSpec, stream(101, 131, 161, 191, 221, 251, 281, 311, 341), fail},
	{"prompt-stream", "failing", "one too many", streamSpec, stream(101, 131, 161, 191, 221, 251, 281, 311, 341, 371, 371), fail},
	{"prompt-stream", "failing", "none at all", streamSpec, stream(), fail},
	{"prompt-stream", "failing", "it broke off behind the last token", streamSpec, steady().c("t", func(c *evidence.Client) { c.Outcome = evidence.KilledMidStream }), fail},
	{"prompt-stream", "failing", "the model server saw its peer go", streamSpec, steady().b("t", func(b *evidence.Backend) { b.Ending = evidence.Aborted }), fail},
	{"prompt-stream", "degenerate", "tokens that were not produced yet", streamSpec, stream(11, 41, 71, 101, 131, 161, 191, 221, 251, 281), inconclusive},
	{"prompt-stream", "degenerate", "it was produced too fast to see anything", streamSpec, steady().b("t", func(b *evidence.Backend) { b.FirstToken = at(200) }), inconclusive},
	{"prompt-stream", "degenerate", "the model server sent no token", streamSpec, steady().b("t", func(b *evidence.Backend) { b.FirstToken = evidence.Never }), inconclusive},
	{"prompt-stream", "degenerate", "the model server never ended it", streamSpec, steady().b("t", func(b *evidence.Backend) { b.End = evidence.Never }), inconclusive},
	{"prompt-stream", "degenerate", "no model server knows it", streamSpec, steady().unseen("t"), inconclusive},
	{"prompt-stream", "degenerate", "no client sent it", streamSpec, steady().unsent("t"), inconclusive},
	{"prompt-stream", "degenerate", "it was sent at no instant", streamSpec, steady().c("t", sentNever), inconclusive},
	{"prompt-stream", "degenerate", "one token is no stream", checks.Spec{IDs: streamSpec.IDs, Needed: 1, Min: streamSpec.Min, Within: streamSpec.Within}, stream(101), inconclusive},
	{"prompt-stream", "degenerate", "no time over which it must be produced", checks.Spec{IDs: streamSpec.IDs, Needed: 10, Within: streamSpec.Within}, steady(), inconclusive},
	{"prompt-stream", "degenerate", "no ids", checks.Spec{Needed: 10, Min: streamSpec.Min, Within: streamSpec.Within}, steady(), inconclusive},

	{"order", "passing", "one that comes later competes from its own turn on", comebackSpec, queue(), pass},
	{"order", "degenerate", "one that comes later came only when its rival had been served", comebackSpec, queue().c("a2", func(c *evidence.Client) { c.Sent = at(1150) }), inconclusive},
	{"order", "degenerate", "one that comes later has no client record", comebackSpec, queue().unsent("a2"), inconclusive},
	{"stays", "failing", "it finishes, and its client is cut off", staySpec, race().c("long", func(c *evidence.Client) { c.Outcome = evidence.TransportError }), fail},
}

// comebackSpec is about a2, which joins b1 in the second group after the queue was complete.
var comebackSpec = checks.Spec{Mark: "queued", Waiting: []string{"a1", "b1"}, Groups: [][]string{{"a1"}, {"b1", "a2"}}}

// drop removes samples.
func (h *hist) drop(f func(evidence.Sample) bool) *hist {
	h.r.Samples = slices.DeleteFunc(slices.Clone(h.r.Samples), f)
	return h
}

// s changes every sample.
func (h *hist) s(f func(*evidence.Sample)) *hist {
	for i := range h.r.Samples {
		f(&h.r.Samples[i])
	}
	return h
}
