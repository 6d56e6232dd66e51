// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func read[T any](t *testing.T, path string) T {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var into T
	if err := yaml.UnmarshalStrict(content, &into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return into
}

// TestPods: with an etcd outside, a pod differs only in what that needs.
func TestPods(t *testing.T) {
	t.Parallel()
	embedded := read[appsv1.StatefulSet](t, "base/statefulset.yaml").Spec.Template
	external := read[appsv1.Deployment](t, "overlays/external-etcd/deployment.yaml").Spec.Template

	external.Spec.TopologySpreadConstraints, external.Spec.Volumes = nil, nil
	container := &external.Spec.Containers[0]
	container.Args = slices.DeleteFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, "--etcd-") })
	container.Env = slices.DeleteFunc(container.Env, func(env corev1.EnvVar) bool { return env.Name == "ETCD_SERVERS" })
	container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool { return mount.Name == "etcd" })
	if diff := cmp.Diff(embedded, external, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the pods differ (-embedded +external):\n%s", diff)
	}
}

// TestGracePeriod: a pod is not killed while it drains.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	// The default of --shutdown-delay-duration with replicas, the time for clients
	// to leave, and upstream's for requests that are under way.
	const drain = 10*time.Second + 3*time.Second + time.Minute
	spec := read[appsv1.Deployment](t, "overlays/external-etcd/deployment.yaml").Spec.Template.Spec
	if grace := time.Duration(*spec.TerminationGracePeriodSeconds) * time.Second; grace <= drain {
		t.Errorf("the grace period of %s is not longer than %s", grace, drain)
	}
	for _, arg := range spec.Containers[0].Args {
		if strings.HasPrefix(arg, "--shutdown-delay-duration") {
			t.Errorf("%s: annex knows when there are other replicas to go to", arg)
		}
	}
}
