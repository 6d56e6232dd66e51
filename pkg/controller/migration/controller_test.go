// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework/controllertest"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	"github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
)

// preparing is a GroupRun that prepares its switch until it is interrupted, as one that waits for its
// confirmation.
type preparing struct{ canceled bool }

func (p *preparing) Do(_, preparing context.Context) error {
	<-preparing.Done()
	return preparing.Err()
}

func (p *preparing) Cancel(context.Context) error {
	p.canceled = true
	return nil
}

func (p *preparing) Completed() string { return "" }

// TestDeletedBeforeAttempt deletes a Migration that no attempt runs, as when the process that ran it has
// ended: the next attempt cancels it.
func TestDeletedBeforeAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		client := fake.NewClientset(&hostingv1alpha1.Migration{
			ObjectMeta: metav1.ObjectMeta{Name: "deleted", DeletionTimestamp: &now, Finalizers: []string{hostingv1alpha1.MigrationFinalizer}},
			Spec:       hostingv1alpha1.MigrationSpec{Group: "example.com", Operation: hostingv1alpha1.MigrationMove},
			Status:     hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationFollowing, StartTime: &now},
		})
		factory := hostinginformers.NewSharedInformerFactory(client, 0)
		informers, run := factory.Hosting().V1alpha1(), &preparing{}
		controller, err := New(Config{
			AnnexHosting: client.HostingV1alpha1(), Migrations: informers.Migrations(), HostedResources: informers.HostedResources(), Stores: informers.Stores(),
			NewGroupRun: func(*migrationstatus.Writer, <-chan struct{}) GroupRun { return run }, Events: events.NewFakeRecorder(10),
		})
		if err != nil {
			t.Fatal(err)
		}
		controllertest.Run(t, controller, 1, factory)
		controllertest.Advance(time.Minute)
		if !run.canceled {
			t.Error("the copy of a Migration that was deleted before the attempt was not removed")
		}
	})
}
