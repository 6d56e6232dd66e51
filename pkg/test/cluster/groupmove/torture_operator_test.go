// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

const (
	// operatorGroup is the API group of hack/tools/operator, which copies Broadcasts to ConfigMaps.
	operatorGroup     = "operator.example.com"
	operatorNamespace = "broadcasting"
	// copyLabel is on the copies.
	copyLabel = operatorGroup + "/copy"
	// keptPrefix begins the names of Broadcasts that are never deleted and always have a copy in keptTarget.
	keptPrefix = "kept-"
	keptTarget = "right"
	broadcasts = 6
)

// installOperator creates the definition of Broadcasts and the operator's service account.
func (f *fixture) installOperator() {
	f.Helper()
	root, err := process.ModuleRoot(f.Context())
	expect.NoError(f, err)
	manifests := filepath.Join(root, "hack", "tools", "operator", "manifests")
	f.kubectl("", "apply", "-f", filepath.Join(manifests, "crd.yaml"), "-f", filepath.Join(manifests, "rbac.yaml"))
	poll.UntilNoError(f, "the main cluster serves broadcasts", func() error {
		_, err := f.broadcasts(f.main).List(f.Context(), metav1.ListOptions{})
		return err
	})
}

func (f *fixture) broadcasts(c *clients.Clients) dynamic.ResourceInterface {
	return c.Dynamic.Resource(schema.GroupVersionResource{Group: f.group, Version: "v1alpha1", Resource: "broadcasts"}).Namespace(operatorNamespace)
}

// runOperator runs the operator until the end of the test. Like a Deployment, it starts the operator again
// when it exits, as it does when it loses its lease.
func (r *torture) runOperator() {
	r.fixture.Helper()
	program, err := process.Bin(r.fixture.Context(), "operator")
	expect.NoError(r.fixture, err)
	kubeconfig, err := r.cluster.ServiceAccountKubeconfig(r.fixture.Context(), operatorNamespace, "operator")
	expect.NoError(r.fixture, err)
	arguments := []string{"--kubeconfig=" + kubeconfig, "--namespace=" + operatorNamespace, "--targets=left," + keptTarget}
	ctx, stop := context.WithCancel(r.fixture.Context())
	var running sync.WaitGroup
	r.fixture.Cleanup(func() {
		stop()
		running.Wait()
	})
	running.Go(func() {
		for starts := 1; ctx.Err() == nil; starts++ {
			operator, err := process.StartCommand(exec.Command(program, arguments...))
			if err != nil {
				r.problem("start the operator: %v", err)
				return
			}
			select {
			case <-operator.Exited():
				r.fixture.Logf("%s the operator ended, start %d", time.Now().Format("15:04:05.000"), starts)
			case <-ctx.Done():
			}
			operator.Kill()
		}
	})
}

// broadcaster creates, changes and deletes Broadcasts.
type broadcaster struct {
	*history
	random *rand.Rand
	client dynamic.ResourceInterface
	n      int64
}

func (b *broadcaster) run(ctx context.Context) {
	for ctx.Err() == nil {
		b.n++
		name := fmt.Sprintf("broadcast-%d", b.random.IntN(broadcasts))
		if b.random.IntN(2) == 0 {
			name = fmt.Sprintf("%s%d", keptPrefix, b.random.IntN(broadcasts))
		}
		began := time.Now()
		err := b.write(name)
		// The operator writes the status and the finalizer.
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !b.mayFail(began) {
			b.problem("write of Broadcast %s: %v (after %s)", name, err, time.Since(began))
		}
		select {
		case <-time.After(20 * b.pause):
		case <-ctx.Done():
		}
	}
}

func (b *broadcaster) write(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	found, err := b.client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		created := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": operatorGroup + "/v1alpha1", "kind": "Broadcast",
			"metadata": map[string]any{"name": name}, "spec": b.spec(),
		}}
		_, err = b.client.Create(ctx, created, metav1.CreateOptions{})
	case err != nil:
	case !strings.HasPrefix(name, keptPrefix) && b.random.IntN(3) == 0:
		// Without the condition API servers lose a finalizer that is added during the request.
		err = b.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
			ResourceVersion: new(found.GetResourceVersion()),
		}})
	default:
		found.Object["spec"] = b.spec()
		_, err = b.client.Update(ctx, found, metav1.UpdateOptions{})
	}
	return err
}

func (b *broadcaster) spec() map[string]any {
	namespaces := []any{keptTarget}
	if b.random.IntN(2) == 0 {
		namespaces = append(namespaces, "left")
	}
	return map[string]any{"namespaces": namespaces, "data": map[string]any{"n": fmt.Sprint(b.n)}}
}

// wantKept records a problem when the operator deletes a copy that it must keep.
func (h *history) wantKept(copied *corev1.ConfigMap) {
	if copied.Namespace == keptTarget && strings.HasPrefix(copied.Name, keptPrefix) {
		h.problem("the operator deleted the copy of %s", copied.Name)
	}
}

// broadcastObject has the fields of a Broadcast that the operator reads and writes.
type broadcastObject struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Namespaces []string          `json:"namespaces"`
		Data       map[string]string `json:"data"`
	} `json:"spec"`
	Status struct {
		Copies     []string           `json:"copies"`
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// checkBroadcasts waits until the operator has acted on the last write of each Broadcast.
func (r *torture) checkBroadcasts() {
	r.fixture.Helper()
	ctx := r.fixture.Context()
	poll.Until(r.fixture, "the operator has reconciled all Broadcasts", func() string {
		list, err := r.fixture.broadcasts(r.main).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		copies, err := r.main.Kube.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{LabelSelector: copyLabel})
		if err != nil {
			return err.Error()
		}
		var want, got []string
		for i := range list.Items {
			var object broadcastObject
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &object); err != nil {
				return err.Error()
			}
			if problem := object.problem(); problem != "" {
				return fmt.Sprintf("Broadcast %s: %s", object.Name, problem)
			}
			for _, namespace := range object.Spec.Namespaces {
				want = append(want, fmt.Sprint(namespace, object.Name, object.Spec.Data))
			}
		}
		for i := range copies.Items {
			copied := &copies.Items[i]
			got = append(got, fmt.Sprint(copied.Namespace, copied.Name, copied.Data))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) || len(want) == 0 {
			return fmt.Sprintf("the copies are %q, want %q", got, want)
		}
		return ""
	})
}

func (o *broadcastObject) problem() string {
	ready := cmp.Or(meta.FindStatusCondition(o.Status.Conditions, "Ready"), &metav1.Condition{})
	switch {
	case o.DeletionTimestamp != nil:
		return "it is being deleted"
	case ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != o.Generation:
		return fmt.Sprintf("its generation is %d, its condition %+v", o.Generation, ready)
	case !slices.Equal(o.Status.Copies, o.Spec.Namespaces):
		return fmt.Sprintf("its status names the copies %v, want %v", o.Status.Copies, o.Spec.Namespaces)
	}
	return ""
}
