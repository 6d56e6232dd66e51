// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// tour shows annex with commands that a user would type.
type tour struct {
	cluster *maincluster.Cluster
	annex   *annextest.Annex
	kubectl string
	root    string // of the repository, where the examples are
}

func (t *tour) run(ctx context.Context) error {
	steps := []func(context.Context) error{t.showHosting, t.takeOver, t.useWidgets, t.showEtcds}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func explain(text string) { fmt.Printf("\n# %s\n", text) }

// do prints a command and runs it, split at spaces.
func (t *tour) do(ctx context.Context, arguments string) error {
	fmt.Printf("$ kubectl %s\n", arguments)
	command := exec.CommandContext(ctx, t.kubectl, strings.Fields(arguments)...)
	command.Dir = t.root
	command.Env = append(os.Environ(), "KUBECONFIG="+t.cluster.Kubeconfig, "KUBECACHEDIR="+t.cluster.Dir+"/kubectl-cache")
	command.Stdout, command.Stderr = os.Stdout, os.Stdout
	if err := command.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w", arguments, err)
	}
	return nil
}

func (t *tour) all(ctx context.Context, commands ...string) error {
	for _, command := range commands {
		if err := t.do(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) showHosting(ctx context.Context) error {
	explain("The main cluster proxies annex's own group to it.")
	return t.all(ctx, "get apiservices v1alpha1.hosting.annex.dev", "get stores")
}

func (t *tour) takeOver(ctx context.Context) error {
	explain("A CRD of the main cluster, as any chart installs it.")
	if err := t.all(ctx,
		"apply -f artifacts/examples/00-namespace.yaml -f artifacts/examples/30-customresourcedefinition.yaml",
		"wait --for=condition=Established crd/widgets."+group,
		"get apiservices v1."+group,
	); err != nil {
		return err
	}
	explain("Let annex check that the main cluster has no objects of the group, and label the CRD for annex.")
	if err := t.all(ctx,
		"create clusterrole annex-hosted-"+group+" --verb=list,watch --resource=widgets."+group,
		"label clusterrole annex-hosted-"+group+" annex.dev/aggregate-to-annex=true",
		"label crd widgets."+group+" annex.dev/hosted=true",
	); err != nil {
		return err
	}
	began := time.Now()
	for _, version := range []string{"v1", "v1beta1"} {
		if err := t.annex.WaitPublished(ctx, group, version); err != nil {
			return err
		}
	}
	explain(fmt.Sprintf("%.1f s later requests for widgets go to annex (in its first seconds behind a cluster it publishes nothing but its own group).", time.Since(began).Seconds()))
	return t.all(ctx, "get apiservices -l annex.dev/published-by", "get hostedresources")
}

func (t *tour) useWidgets(ctx context.Context) error {
	explain("Use it as before.")
	return t.all(ctx,
		"apply -f artifacts/examples/40-widget.yaml",
		"get widgets --all-namespaces",
		"explain widgets.spec.color",
		"wait --for=jsonpath={.status.objects}=1 hostedresource/widgets."+group,
		"get hostedresources",
	)
}

// showEtcds shows in which etcd the objects are.
func (t *tour) showEtcds(ctx context.Context) error {
	const mainPrefix, annexPrefix = "/registry/" + group + "/", "/annex/" + group + "/"
	mainKeys, err := t.cluster.EtcdKeys(ctx, mainPrefix)
	if err != nil {
		return err
	}
	annexKeys, err := etcdKeys(ctx, t.annex.DataDir, annexPrefix)
	if err != nil {
		return err
	}
	explain("Where are the objects?")
	fmt.Printf("below %s in the main cluster's etcd: %d\n", mainPrefix, len(mainKeys))
	fmt.Printf("below %s in annex's etcd: %d\n", annexPrefix, len(annexKeys))
	for _, key := range annexKeys {
		fmt.Println("  " + key)
	}
	if len(mainKeys) > 0 || len(annexKeys) == 0 {
		return errors.New("the objects are not where they should be")
	}
	return nil
}
