// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

// host creates a HostedResource without a CRD, with a unique name.
func (a *annex) host(t *testing.T, spec hostingv1alpha1.HostedResourceSpec) *resource {
	t.Helper()
	r := &resource{annex: a, name: "widgets." + rand.String(8) + ".example.com"}
	a.createHostedResource(t, r.name, spec)
	return r
}

// scheduled checks the condition Scheduled of a HostedResource.
func scheduled(status metav1.ConditionStatus, reason string, words ...string) func(*hostingv1alpha1.HostedResource) bool {
	return func(hosted *hostingv1alpha1.HostedResource) bool {
		condition := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
		return condition != nil && condition.Status == status && condition.Reason == reason && condition.ObservedGeneration == hosted.Generation &&
			expect.Missing(condition.Message, words...) == "" && (hosted.Spec.StoreName != "") == (status == metav1.ConditionTrue)
	}
}

// waitForEvent waits for an event about the resource's HostedResource.
func (r *resource) waitForEvent(t *testing.T, reporter, reason string, words ...string) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("an event %s of %s has %q", reason, r.name, words), func() string {
		events, err := r.annex.Kube.EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=" + r.name})
		if err != nil {
			return err.Error()
		}
		var notes []string
		for _, event := range events.Items {
			if event.Reason == reason && event.ReportingController == reporter && event.Regarding.Kind == "HostedResource" && expect.Missing(event.Note, words...) == "" {
				return ""
			}
			notes = append(notes, event.ReportingController+" "+event.Reason+": "+event.Note)
		}
		return strings.Join(notes, "\n")
	})
}

func TestBinding(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	r := a.host(t, hostingv1alpha1.HostedResourceSpec{SchedulerName: "unknown"})
	client := a.HostedResources()
	bind := func(storeName string, uid types.UID, dryRun ...string) error {
		_, err := client.Bind(t.Context(), r.name, &hostingv1alpha1.HostedResourceBinding{
			ObjectMeta: metav1.ObjectMeta{Name: r.name, UID: uid}, StoreName: storeName,
		}, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	expect.Error(t, bind("lost", ""), `storeName: Not found: "lost"`)
	expect.Error(t, bind("default", "another"), "it has the UID")
	_, err := client.Patch(t.Context(), r.name, types.MergePatchType, []byte(`{"spec": {"storeName": "default"}}`), metav1.PatchOptions{})
	expect.Error(t, err, "the subresource binding sets it")
	expect.NoError(t, bind("default", "", metav1.DryRunAll))
	hosted, err := client.Get(t.Context(), r.name, metav1.GetOptions{})
	if err != nil || hosted.Spec.StoreName != "" {
		t.Fatalf("after a dry run: Store %q, %v", hosted.Spec.StoreName, err)
	}

	// Equal bindings at the same time all succeed.
	var others sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		others.Go(func() { results[i] = bind("default", hosted.UID) })
	}
	others.Wait()
	expect.Succeeds(t, errors.Join(results...), "the same binding several times")
	r.waitForHostedResource(t, "is placed", scheduled(metav1.ConditionTrue, "Bound", `Store "default"`))
	elsewhere := a.newStore(t, "elsewhere-"+rand.String(8)).Name
	if err := bind(elsewhere, ""); !apierrors.IsConflict(err) {
		t.Errorf("binding it again elsewhere: %v, want a conflict", err)
	}
}

// startScheduler runs `annex scheduler` as a process.
func (a *annex) startScheduler(t *testing.T, name string) *process.Annex {
	t.Helper()
	return startCommand(t, "scheduler", "--kubeconfig="+a.Kubeconfig, "--scheduler-name="+name)
}

// waitForLeadership waits until a scheduler is the leader.
func waitForLeadership(t *testing.T, scheduler *process.Annex, name string) {
	t.Helper()
	poll.UntilDone(t, "the scheduler leads", func() (bool, string) {
		printed := scheduler.Stdout()
		return strings.Contains(printed, "annex scheduler: placing resources for "+name), "it printed " + printed
	})
}

func TestExternalScheduler(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	name := "scheduler-" + rand.String(8)
	first := a.host(t, hostingv1alpha1.HostedResourceSpec{SchedulerName: name})
	// annex's own scheduler does not place resources of others.
	a.host(t, hostingv1alpha1.HostedResourceSpec{}).waitForHostedResource(t, "is placed", scheduled(metav1.ConditionTrue, "Bound"))
	if hosted := first.waitForHostedResource(t, "exists", func(*hostingv1alpha1.HostedResource) bool { return true }); hosted.Spec.StoreName != "" {
		t.Errorf("it was placed on %s by another scheduler", hosted.Spec.StoreName)
	}

	leader := a.startScheduler(t, name)
	waitForLeadership(t, leader, name)
	first.waitForHostedResource(t, "is placed", scheduled(metav1.ConditionTrue, "Bound"))
	first.waitForEvent(t, name, "Scheduled", "Placed on Store default")

	standby := a.startScheduler(t, name)
	lease, err := a.Kube.CoordinationV1().Leases("annex-system").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("the lease: %v, %v", lease, err)
	}
	if strings.Contains(standby.Stdout(), "placing") {
		t.Error("there are two leaders")
	}
	expect.Succeeds(t, leader.Stop(poll.Timeout))
	waitForLeadership(t, standby, name)
	a.host(t, hostingv1alpha1.HostedResourceSpec{SchedulerName: name}).waitForHostedResource(t, "is placed by the next leader", scheduled(metav1.ConditionTrue, "Bound"))
	expect.Succeeds(t, standby.Stop(poll.Timeout))
}

func TestPlaceCommand(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	place := func(args ...string) (string, string) {
		var out, errOut bytes.Buffer
		cmd.Execute(append([]string{"place", "--kubeconfig=" + a.Kubeconfig}, args...), &out, &errOut)
		return out.String(), errOut.String()
	}
	out, _ := place("lost.example.com")
	expect.Contains(t, out, "There is no HostedResource lost.example.com. One that asks for nothing would be placed on default.", "STORE", "SCORE", "LeastAllocated 2x")
	r := a.host(t, hostingv1alpha1.HostedResourceSpec{SchedulerName: "unknown", StoreSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "store"}}})
	out, _ = place(r.name)
	expect.Contains(t, out, r.name+" waits for the scheduler unknown. Here it fits on no Store.", "default", "does not match the selector no=store")
	_, errOut := place(r.name, "--store=lost")
	expect.Contains(t, errOut, "place "+r.name+" on Store lost", `Not found: "lost"`)
	out, _ = place(r.name, "--store=default")
	expect.Contains(t, out, r.name+" is on Store default\n")
	out, _ = place(r.name)
	expect.Contains(t, out, r.name+" is on Store default. If it were not, it fits on no Store.")
}

func TestStatusCommands(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	lost := a.host(t, hostingv1alpha1.HostedResourceSpec{StoreSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "store"}}})
	lost.waitForHostedResource(t, "is not placed", scheduled(metav1.ConditionFalse, "Unschedulable"))
	r := a.host(t, hostingv1alpha1.HostedResourceSpec{})
	r.waitForHostedResource(t, "is placed", scheduled(metav1.ConditionTrue, "Bound"))
	printed, err := run("status", "--kubeconfig="+a.Kubeconfig, "-owide")
	expect.Error(t, err, "exit code 1: annex: ", "found")
	expect.Contains(t, printed, a.URL, "standalone", "valid until", "GROUP", "CACHED", "STORE", "NEEDS ATTENTION", lost.name+": Scheduled is False", "1 of 1")
	printed, _ = run("status", "--kubeconfig="+a.Kubeconfig, "-ojson")
	expect.Contains(t, printed, `"mode": "standalone"`, `"object": "hostedresource/`+lost.name+`"`, `"healthy": false`)
	for _, key := range []string{"bytes", "requests"} {
		printed := mustRun(t, "top", "--kubeconfig="+a.Kubeconfig, "--interval=10ms", "--sort-by="+key)
		expect.Contains(t, printed, "REQ/S", r.name, lost.name)
		if strings.Contains(printed, " - ") {
			t.Errorf("the requests are unknown:\n%s", printed)
		}
	}
}
