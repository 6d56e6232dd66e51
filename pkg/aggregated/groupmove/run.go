// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package groupmove runs Migrations of groups: it moves the objects of a group from the main cluster
// into annex and back, while clients use them.
//
// The function next decides what happens, and the phase of the Migration records it. Other packages do the
// work: pkg/storage/move copies objects into a Store, pkg/aggregated/maincopy writes the main cluster's
// objects, and the controller of groups routes the main cluster's requests as the phase requires. Every
// step can be repeated, so that another replica continues after a crash.
package groupmove

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/openapi"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/migration/migrationstatus"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/move"
)

// pollInterval is the time between two reads of a state that others change.
const pollInterval = 100 * time.Millisecond

// Config holds what runs depend on.
type Config struct {
	// PublishedBy is the label value of the APIServices that lead to this annex.
	PublishedBy string
	// ServedBy requests a group version through the main cluster, each time on a new connection,
	// and returns the PublishedByHeader of the response.
	ServedBy func(ctx context.Context, version schema.GroupVersion) (string, error)
	// Discovered returns the resources of a group that the main cluster discovers itself, by version,
	// each time on a new connection.
	Discovered func(ctx context.Context, group string) (map[string][]string, error)

	MainDefinitions apiextensionsclient.CustomResourceDefinitionInterface
	MainAPIServices apiregistrationclient.APIServiceInterface
	MainOpenAPI     openapi.ClientWithContext
	// MainDynamic sends requests through the main cluster.
	MainDynamic dynamic.Interface

	AnnexDefinitions apiextensionsclient.CustomResourceDefinitionInterface
	AnnexHosting     hostingclient.HostingV1alpha1Interface
	// NewImporter returns what copies a resource into a Store. config has everything except To.
	NewImporter func(store string, config move.Config) (*move.Importer, error)
	// NewExporter returns what moves a resource out of a Store. config has everything except From.
	NewExporter func(store string, config move.Config) (*move.Exporter, error)

	// MainCopy works on the objects that the main cluster stores of the groups.
	MainCopy *maincopy.Copy
}

// Run is one attempt to run a Migration of a group. One goroutine uses it.
type Run struct {
	*migrationstatus.Writer
	config    Config
	changed   <-chan struct{}
	operation operation
	resources []*resource
	// raising is set once a rollback raises the main cluster's revision.
	raising atomic.Pointer[raising]
	// found is set once resources has the group's, and records once the earlier attempts are fenced.
	found   bool
	records records
	// canceled, undone and deleted are copied to each situation.
	canceled, undone, deleted bool
	// workers copy what is written meanwhile, or are nil.
	workers *workers
}

// operation is Move, Rollback or Finalize.
type operation interface {
	// fence fences all earlier attempts in the Stores, and sets what they record.
	fence(ctx context.Context) error
	// perform takes a step. Steps before the switch end when preparing is done.
	perform(ctx, preparing context.Context, s step) error
	completed() string
}

// New returns an attempt. changed receives after changes of the Migration.
func New(config Config, status *migrationstatus.Writer, changed <-chan struct{}) *Run {
	r := &Run{Writer: status, config: config, changed: changed}
	r.config.MainCopy = config.MainCopy.Fenced(status.Check)
	r.Progress = r.addProgress
	switch status.Migration.Spec.Operation {
	case hostingv1alpha1.MigrationRollback:
		r.operation = &rollback{Run: r}
	case hostingv1alpha1.MigrationFinalize:
		r.operation = &finalize{Run: r}
	default:
		r.operation = &moveIn{Run: r, load: move.NewPace(1)}
	}
	return r
}

// Do runs the Migration from where an earlier attempt left it. Steps before the switch end when preparing is done.
func (r *Run) Do(ctx, preparing context.Context) error {
	err := r.run(ctx, preparing)
	if apierrors.IsForbidden(err) && !maincopy.IsDenied(err) {
		command := strings.ToLower(string(r.Migration.Spec.Operation)) + " " + r.group()
		if r.Migration.Spec.ExemptWebhooks {
			command += " --exempt-webhooks"
		}
		return fmt.Errorf("%w. Grant annex the rights for the group: kubectl annex %s", err, command)
	}
	return err
}

// Cancel undoes a Migration before its switch. After that it returns move.ErrSwitched.
func (r *Run) Cancel(ctx context.Context) error {
	r.canceled, r.found, r.records = true, false, recordsUnknown
	return r.run(ctx, ctx)
}

func (r *Run) run(ctx, preparing context.Context) error {
	defer func() { r.workers.end() }()
	for after := step(""); ; {
		s := next(situation{
			operation: r.Migration.Spec.Operation, phase: r.Status.Phase, started: r.Status.StartTime != nil, switched: r.Status.SwitchTime != nil,
			canceled: r.canceled, undone: r.undone, deleted: r.deleted, records: r.records, after: after,
		})
		var err error
		switch s {
		case stepDone:
			return nil
		case stepGoOn:
			return move.ErrSwitched
		case stepHold:
			err = r.hold(ctx, preparing)
		default:
			err = r.operation.perform(ctx, preparing, s)
		}
		if err != nil {
			return err
		}
		after = s
	}
}

func (r *Run) hold(ctx, preparing context.Context) error {
	if r.Status.SwitchTime != nil || r.Status.Phase == hostingv1alpha1.MigrationSwitching {
		preparing = ctx // an attempt that has ended may have opened or closed a resource
	}
	if !r.found {
		if err := r.find(preparing); err != nil {
			return err
		}
		r.found = true
	}
	if err := r.operation.fence(ctx); err != nil {
		return err
	}
	// An attempt that was replaced before may have fenced its successor, and must not go on. One that is replaced
	// from now on has lost the Stores, too.
	return r.Check(ctx)
}

// Completed returns the message of a completed Migration.
func (r *Run) Completed() string { return r.operation.completed() }

func (r *Run) group() string { return r.Migration.Spec.Group }

// start records that the Migration has begun.
func (r *Run) start(ctx context.Context, message string) error {
	r.Status.StartTime = new(metav1.Now())
	return r.SetPhase(ctx, hostingv1alpha1.MigrationPending, message)
}

// switchedTo records that another side serves the group.
func (r *Run) switchedTo(ctx context.Context, phase hostingv1alpha1.MigrationPhase, message, event string) error {
	r.Status.SwitchTime = new(metav1.Now())
	if err := r.SetPhase(ctx, phase, message); err != nil {
		return err
	}
	r.Event(corev1.EventTypeNormal, eventSwitched, "%s", event)
	return nil
}

// until polls until done returns true. An error that done returns ends it.
func until(ctx context.Context, done func(ctx context.Context) (bool, error)) error {
	return untilEvery(ctx, pollInterval, done)
}

// untilEvery pauses between two calls of done, however long they take.
func untilEvery(ctx context.Context, interval time.Duration, done func(ctx context.Context) (bool, error)) error {
	for {
		ended, err := done(ctx)
		switch {
		case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return context.Cause(ctx)
		case ended || err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(interval):
		}
	}
}

// untilReported polls until problem returns an empty string, and reports what it returns meanwhile.
func (r *Run) untilReported(ctx context.Context, problem func(ctx context.Context) (string, error)) error {
	reported := time.Time{}
	return until(ctx, func(ctx context.Context) (bool, error) {
		message, err := problem(ctx)
		if err != nil || message == "" {
			return err == nil, err
		}
		if time.Since(reported) < time.Second {
			return false, nil
		}
		reported = time.Now()
		return false, r.Wait(ctx, message)
	})
}

// wrap adds what was done to an error, if there is one.
func wrap(err error, format string, arguments ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, arguments...), err)
}
