package pubsubq

import (
	"errors"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
)

// TestRead: bodies are bare requests, attributes win over metadata, earlier deliveries are retries where they are counted (AP-TRN-09).
func TestRead(t *testing.T) {
	third := 3
	for name, c := range map[string]struct {
		m          pubsub.Message
		id         string
		user       string
		retries    int
		bad        bool
		unreadable bool
	}{
		"plain":       {pubsub.Message{Data: []byte(`{"id":"a","deadline":9,"payload":{},"metadata":{"userid":"u"}}`)}, "a", "u", 0, false, false},
		"attributes":  {pubsub.Message{Data: []byte(`{"id":"a","deadline":9,"payload":{}}`), Attributes: map[string]string{"userid": "v"}, DeliveryAttempt: &third}, "a", "v", 2, false, false},
		"no deadline": {pubsub.Message{Data: []byte(`{"id":"a","payload":{}}`)}, "a", "", 0, true, false},
		"no JSON":     {pubsub.Message{Data: []byte(`x`)}, "", "", 0, true, true},
	} {
		c.m.PublishTime = time.Unix(5, 0)
		d := redisq.Delivery{Handle: &message{m: &c.m}}
		e, err := Read(d)
		if e.Request.ID != c.id || e.Request.Metadata["userid"] != c.user || e.Internal.RetryCount != c.retries || (err != nil) != c.bad ||
			errors.Is(err, async.ErrUnreadable) != c.unreadable || Published(d).Unix() != 5 {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	if _, err := Read(redisq.Delivery{}); !errors.Is(err, async.ErrUnreadable) {
		t.Error(err)
	}
}
