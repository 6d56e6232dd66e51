// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apiextensions-apiserver/pkg/controller/establish"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// A server may end after the names of a definition were accepted, and before it was established.
func TestEstablishAccepted(t *testing.T) {
	t.Parallel()
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}}
	apihelpers.SetCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue})
	client := fake.NewClientset(crd)
	factory := crdinformers.NewSharedInformerFactory(client, 0)
	crds := factory.Apiextensions().V1().CustomResourceDefinitions()
	controller := establish.NewEstablishingController(crds, client.ApiextensionsV1())
	expect.NoError(t, establishAccepted(crds.Informer(), controller, 1))
	factory.StartWithContext(t.Context())
	t.Cleanup(factory.Shutdown)
	go controller.RunWithContext(t.Context())
	poll.UntilDone(t, "the definition is established", func() (bool, string) {
		found, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), crd.Name, metav1.GetOptions{})
		expect.NoError(t, err)
		return apihelpers.IsCRDConditionTrue(found, apiextensionsv1.Established), fmt.Sprint(found.Status.Conditions)
	})
}
