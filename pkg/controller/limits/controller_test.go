// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/usage"
)

// counted is how much there is.
type counted struct {
	mu      sync.Mutex
	objects int64
	unknown bool
}

func (c *counted) set(objects int64, unknown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects, c.unknown = objects, unknown
}

// In knows nothing of other Stores, as if they were away.
func (c *counted) In(store string, _ schema.GroupResource) (in usage.Usage, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return usage.Usage{Objects: c.objects, Bytes: 100 * c.objects}, store == storeName && !c.unknown
}

func (c *counted) Namespaces(resource schema.GroupResource) map[string]usage.Usage {
	in, _ := c.In(storeName, resource)
	return map[string]usage.Usage{"default": in}
}

func TestController(t *testing.T) {
	// Not parallel: metrics are global.
	synctest.Test(t, func(t *testing.T) {
		annex := annexfake.NewClientset(limited(of("4", ""), nil))
		informers := annexinformers.NewSharedInformerFactory(annex, 0)
		used, recorder := &counted{unknown: true}, events.NewFakeRecorder(10)
		hostedResources := annex.HostingV1alpha1().HostedResources()
		c, err := New(Config{
			AnnexHostedResources: hostedResources, HostedResources: informers.Hosting().V1alpha1().HostedResources(),
			Usage: used, Events: recorder,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		informers.StartWithContext(ctx)
		running.Go(func() { c.Run(ctx, 1) })
		defer func() {
			cancel()
			running.Wait()
			informers.Shutdown()
		}()
		want := func(what, condition, ratio string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			hosted, err := hostedResources.Get(ctx, widgets, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if c := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceWithinLimits); c != nil {
				got = string(c.Status) + " " + c.Reason + " " + c.Message
			}
			if got != condition {
				t.Errorf("%s: the condition is %q, want %q", what, got, condition)
			}
			expected := ""
			if ratio != "" {
				expected = "# HELP annex_hostedresource_limit_used_ratio [ALPHA] " + help() + "\n# TYPE annex_hostedresource_limit_used_ratio gauge\n" +
					`annex_hostedresource_limit_used_ratio{hostedresource="widgets.example.com",limit="objects",scope="whole"} ` + ratio + "\n"
			}
			if err := testutil.CollectAndCompare(filled, strings.NewReader(expected), "annex_hostedresource_limit_used_ratio"); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		resource := schema.ParseGroupResource(widgets)

		want("while the usage is not known", "", "")
		used.set(3, false)
		c.AllUsageChanged()
		want("with room", "True BelowLimits objects 3 of 4", "0.75")
		used.set(4, false)
		c.UsageChanged(resource)
		want("full", "False LimitReached objects 4 of 4", "1")
		select {
		case event := <-recorder.Events:
			if event != "Warning LimitReached objects 4 of 4" {
				t.Errorf("event %q", event)
			}
		default:
			t.Error("no event says that the limit is reached")
		}

		hosted, err := hostedResources.Get(ctx, widgets, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		hosted.Spec.Limits = nil
		if _, err := hostedResources.Update(ctx, hosted, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		want("without limits", "", "")
	})
}

func help() string {
	return "How much of a limit of a HostedResource is used, 1 being all; of the limits in each namespace, that of the fullest. Only the replica that runs the controllers tells."
}
