// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler implements `annex scheduler`, which places HostedResources on Stores
// from a separate process, as a client of annex.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	annexscheme "github.com/annex-dev/annex/pkg/generated/clientset/versioned/scheme"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/leader"
	"github.com/annex-dev/annex/pkg/scheduler"
)

const (
	// bindings is the number of concurrent bindings.
	bindings = 16
	resync   = 10 * time.Minute
)

type options struct {
	login       login.Options
	name        string
	leaderElect bool
	namespace   string
	timing      leader.Timing
	logs        *logsapi.LoggingConfiguration
}

// NewCommand returns `annex scheduler`.
func NewCommand(out io.Writer) *cobra.Command {
	o := &options{
		name: hostingv1alpha1.DefaultSchedulerName, leaderElect: true, namespace: "annex-system",
		timing: leader.DefaultTiming(), logs: logsapi.NewLoggingConfiguration(),
	}
	cmd := &cobra.Command{
		Use:   "scheduler",
		Short: "Choose the Stores of resources, from a separate process",
		Long: "Choose a Store for each HostedResource that has none and names this scheduler in spec.schedulerName.\n" +
			"`annex serve` does so for those that name none. Use this for a scheduler with your own plugins, or one\n" +
			"that runs elsewhere. Replicas elect a leader with a Lease.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), out)
		},
	}
	fs := cmd.Flags()
	o.login.AddFlags(fs, login.AnnexOrMain)
	fs.StringVar(&o.name, "scheduler-name", o.name, "Place the HostedResources with this spec.schedulerName. This is also the name of the Lease.")
	fs.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect, "Place resources only while holding the Lease, so that several replicas can run.")
	fs.StringVar(&o.namespace, "leader-elect-resource-namespace", o.namespace, "The namespace of the Lease.")
	o.timing.AddFlags(fs, "places resources")
	logsapi.AddFlags(o.logs, fs)
	return cmd
}

func (o *options) validate() error {
	var errs []error
	if msgs := apivalidation.NameIsDNSSubdomain(o.name, false); len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("--scheduler-name %q: %s", o.name, strings.Join(msgs, ", ")))
	}
	if o.leaderElect && o.namespace == "" {
		errs = append(errs, errors.New("--leader-elect-resource-namespace must not be empty"))
	}
	if err := o.timing.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration, --leader-elect-renew-deadline, --leader-elect-retry-period: %w", err))
	}
	return utilerrors.NewAggregate(errs)
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	if err := logsapi.ValidateAndApply(o.logs, nil); err != nil {
		return fmt.Errorf("apply the logging flags: %w", err)
	}
	clients, err := o.login.Connect("annex-scheduler")
	if err != nil {
		return err
	}
	work := func(ctx context.Context) error {
		fmt.Fprintf(out, "annex scheduler: placing resources for %s at %s\n", o.name, clients.Config.Host)
		return o.work(ctx, clients.Annex, clients.Kube)
	}
	if !o.leaderElect {
		return work(ctx)
	}
	// An error is permanent and ends the process.
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	err = leader.Run(ctx, leader.Config{
		Leases: clients.Kube.CoordinationV1(), Namespace: o.namespace, Name: o.name, Identity: leader.NewIdentity(), Timing: o.timing,
	}, func(ctx context.Context) {
		if err := work(ctx); err != nil {
			end(err)
		}
	})
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (o *options) work(ctx context.Context, annexHosting annexclient.Interface, kube kubernetes.Interface) error {
	broadcaster := scheduler.NewEventBroadcaster(kube.EventsV1())
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	informers := annexinformers.NewSharedInformerFactory(annexHosting, resync)
	hosting := informers.Hosting().V1alpha1()
	s, err := scheduler.New(scheduler.Config{
		Name:                 o.name,
		AnnexHostedResources: annexHosting.HostingV1alpha1().HostedResources(),
		HostedResources:      hosting.HostedResources(),
		Stores:               hosting.Stores(),
		Migrations:           hosting.Migrations(),
		Events:               broadcaster.NewRecorder(annexscheme.Scheme, o.name),
	})
	if err != nil {
		return err
	}
	informers.StartWithContext(ctx)
	defer informers.Shutdown()
	s.Run(ctx, bindings)
	return nil
}
