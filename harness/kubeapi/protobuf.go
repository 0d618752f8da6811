package kubeapi

import (
	"bytes"
	"encoding/json"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protobuf is the media type in which typed clients write built-in kinds. It is read where such a client has no other choice: for Leases
// and for the options of a deletion. Answers are JSON all the same; every client reads that.
const protobuf = "application/vnd.kubernetes.protobuf"

// magic begins a body in protobuf.
var magic = []byte("k8s\x00")

// message is a kind in protobuf that is JSON as well.
type message interface {
	Unmarshal([]byte) error
	setType(runtime.TypeMeta)
}

type lease struct{ coordinationv1.Lease }

func (l *lease) setType(t runtime.TypeMeta) {
	l.TypeMeta = metav1.TypeMeta{Kind: t.Kind, APIVersion: t.APIVersion}
}

type deleteOptions struct{ metav1.DeleteOptions }

func (o *deleteOptions) setType(t runtime.TypeMeta) {
	o.TypeMeta = metav1.TypeMeta{Kind: t.Kind, APIVersion: t.APIVersion}
}

// fromProtobuf reads a body into m and writes it as JSON.
func fromProtobuf(text []byte, m message) ([]byte, error) {
	rest, ok := bytes.CutPrefix(text, magic)
	if !ok {
		return nil, errors.New("a body in protobuf begins with k8s and a zero")
	}
	var u runtime.Unknown
	if err := u.Unmarshal(rest); err != nil {
		return nil, err
	}
	if err := m.Unmarshal(u.Raw); err != nil {
		return nil, err
	}
	m.setType(u.TypeMeta)
	return json.Marshal(m)
}
