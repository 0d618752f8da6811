package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

// project is the Pub/Sub project of all scenarios.
const project = "weir"

// topics are a Pub/Sub server and what the harness does with it.
type topics struct {
	server *pstest.Server
	client *pubsub.Client
	stop   context.CancelFunc
	tasks  sync.WaitGroup
}

func newTopics(ctx context.Context) (*topics, error) {
	t := &topics{server: pstest.NewServer()}
	conn, err := grpc.NewClient(t.server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("Pub/Sub stand-in: %w", err), t.server.Close())
	}
	ctx, t.stop = context.WithCancel(context.WithoutCancel(ctx))
	t.client, err = pubsub.NewClient(ctx, project, option.WithGRPCConn(conn))
	if err != nil {
		t.stop()
		return nil, errors.Join(fmt.Errorf("Pub/Sub stand-in: %w", err), conn.Close(), t.server.Close())
	}
	return t, nil
}

// create makes a topic and a subscription of one name.
func (t *topics) create(ctx context.Context, name string, deadLetter bool) error {
	topic := "projects/" + project + "/topics/" + name
	if _, err := t.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topic}); err != nil {
		return fmt.Errorf("topic %s: %w", name, err)
	}
	s := &pubsubpb.Subscription{Name: "projects/" + project + "/subscriptions/" + name, Topic: topic, AckDeadlineSeconds: 10,
		RetryPolicy: &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(0), MaximumBackoff: durationpb.New(0)}}
	if deadLetter {
		dead := topic + "-dead"
		if _, err := t.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: dead}); err != nil {
			return fmt.Errorf("topic %s: %w", dead, err)
		}
		s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 20}
	}
	if _, err := t.client.SubscriptionAdminClient.CreateSubscription(ctx, s); err != nil {
		return fmt.Errorf("subscription %s: %w", name, err)
	}
	return nil
}

// publish puts a message into a topic; attributes are metadata of the message.
func (t *topics) publish(name string, body json.RawMessage, attributes map[string]string) {
	t.server.Publish("projects/"+project+"/topics/"+name, body, attributes)
}

// listen takes what a subscription has until the end.
func (t *topics) listen(ctx context.Context, name string, take func([]byte)) {
	ctx, cancel := context.WithCancel(ctx)
	stop := t.stop
	t.stop = func() { cancel(); stop() }
	t.tasks.Go(func() {
		_ = t.client.Subscriber(name).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
			take(m.Data)
			m.Ack()
		})
	})
}

func (t *topics) close() {
	t.stop()
	t.tasks.Wait()
	_ = t.client.Close()
	_ = t.server.Close()
}
