// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// completionTimeout bounds what a shell waits for.
const completionTimeout = 3 * time.Second

// Names lists what an argument or a flag may be.
type Names func(ctx context.Context, c *Clients) ([]string, error)

// Names of objects of annex, and of groups of CRDs.
var (
	HostedResources Names = namesOf(hostingv1alpha1.SchemeGroupVersion.WithResource("hostedresources"))
	Stores          Names = namesOf(hostingv1alpha1.SchemeGroupVersion.WithResource("stores"))
	definitions     Names = namesOf(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
)

// Groups lists the groups that have CRDs.
func Groups(ctx context.Context, c *Clients) ([]string, error) {
	names, err := definitions(ctx, c)
	for i := range names {
		names[i] = schema.ParseGroupResource(names[i]).Group
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func namesOf(resource schema.GroupVersionResource) Names {
	return func(ctx context.Context, c *Clients) ([]string, error) {
		found, err := c.Metadata.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		names := make([]string, 0, len(found.Items))
		for i := range found.Items {
			names = append(names, found.Items[i].Name)
		}
		return names, nil
	}
}

// CompleteArgument lets shells complete the only argument of a command.
func (o *Options) CompleteArgument(cmd *cobra.Command, names Names) {
	complete := o.complete(names)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// CompleteFlag lets shells complete the value of a flag that the command has.
func (o *Options) CompleteFlag(cmd *cobra.Command, flag string, names Names) {
	if err := cmd.RegisterFlagCompletionFunc(flag, o.complete(names)); err != nil {
		panic(err) // the command has no such flag
	}
}

func (o *Options) complete(names Names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		clients, err := o.Connect("annex-complete")
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := names(ctx, clients)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
