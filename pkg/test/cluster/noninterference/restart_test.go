// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package noninterference

import (
	"bytes"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestMainClusterRestarts: kube-apiserver collects the documents of all APIServices at its
// start, also those of groups that annex has taken over. OpenAPI of other aggregated servers
// breaks then, long after their installation. The test stops the main cluster, so it does not
// run in parallel.
func TestMainClusterRestarts(t *testing.T) {
	s := running(t)
	mainClients := main(t)
	followed := newMainWidgets(t, s)
	s.takeOver(t, followed)
	published := s.newWidgets(t)
	followed.create(t, "one")
	document := "/openapi/v3/apis/" + followed.group + "/v1"
	before := mainClients.get(t, document)

	expect.NoError(t, mainCluster.StopAPIServer(t.Context()))
	own := s.own(t)
	poll.UntilDone(t, "annex's own endpoint serves without the main cluster", func() (bool, string) {
		// The first list of a kind finds a watch cache that is not warm.
		got := own.get(t, "/apis/"+published.group+"/v1/widgets")
		return got.Code == http.StatusOK, got.String()
	})
	expect.NoError(t, mainCluster.StartAPIServer(t.Context()))
	poll.UntilDone(t, "the main cluster has collected annex's documents", func() (bool, string) {
		now := mainClients.documents(t)
		for _, version := range []string{"hosting.annex.dev/v1alpha1", published.group + "/v1", followed.group + "/v1"} {
			if now.index["apis/"+version] == "" {
				return false, version + " is not in v3"
			}
		}
		return now.paths["/apis/"+published.group+"/v1/widgets"] != nil && now.paths["/apis/"+followed.group+"/v1/widgets"] != nil, "v2 is incomplete"
	})
	checkUnchanged(t, s.before, mainClients.documents(t))
	if after := mainClients.readRepeatedly(t, document); !bytes.Equal(before.Body, after.Body) {
		t.Errorf("the v3 document changed from\n%s\nto\n%s", before.Body, after.Body)
	}
	mainClients.readRepeatedly(t, "/openapi/v3/apis/apiextensions.k8s.io/v1")
	poll.UntilNoError(t, "annex's objects can be read", func() error {
		_, err := followed.by(mainClients).Get(shortly(t), "one", metav1.GetOptions{})
		return err
	})
}
