// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	// In v1 an address is one field, in v2 it is two.
	addressSchemaV1 = `
type: object
properties: {spec: {type: object, properties: {address: {type: string}}}}
`
	addressSchemaV2 = `
type: object
properties: {spec: {type: object, properties: {host: {type: string}, port: {type: string}}}}
`
)

// convertAddresses converts between v1 and v2.
var convertAddresses = crds.ConvertEach(convertAddress)

func convertAddress(raw []byte, apiVersion string) ([]byte, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, err
	}
	spec := map[string]any{}
	if strings.HasSuffix(apiVersion, "/v2") {
		address, _, _ := unstructured.NestedString(object.Object, "spec", "address")
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		spec["host"], spec["port"] = host, port
	} else {
		host, _, _ := unstructured.NestedString(object.Object, "spec", "host")
		port, _, _ := unstructured.NestedString(object.Object, "spec", "port")
		spec["address"] = net.JoinHostPort(host, port)
	}
	object.Object["spec"] = spec
	object.SetAPIVersion(apiVersion)
	return object.MarshalJSON()
}

// unreachableConversion is a conversion by a webhook that does not exist.
func unreachableConversion() *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/unreachable")},
			ConversionReviewVersions: []string{"v1"},
		},
	}
}

// installConvertedCRD installs a CRD with both versions; v1 is stored.
func (a *annex) installConvertedCRD(t *testing.T, webhook *apiextensionsv1.WebhookConversion) *resource {
	t.Helper()
	crd := newCRD(t, addressSchemaV1)
	crd.Spec.Versions = append(crd.Spec.Versions, newVersion(t, "v2", addressSchemaV2))
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: webhook}
	// annex would retry the closed webhook for ever.
	t.Cleanup(func() {
		err := a.CRDs().Delete(context.Background(), crd.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete the CRD %s: %v", crd.Name, err)
		}
	})
	return a.installCRD(t, crd)
}

func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	widgets := sharedAnnex(t).installConvertedCRD(t, convertAddresses.Start(t))
	first := widgets.create(t, "v1", "first", "spec: {address: 'one:1'}")
	events := widgets.watch(t, "v2", metav1.ListOptions{ResourceVersion: first.GetResourceVersion()})
	second := widgets.create(t, "v2", "second", "spec: {host: two, port: '2'}")

	for version, want := range map[string]map[string]any{
		"v1": {"first": map[string]any{"address": "one:1"}, "second": map[string]any{"address": "two:2"}},
		"v2": {"first": map[string]any{"host": "one", "port": "1"}, "second": map[string]any{"host": "two", "port": "2"}},
	} {
		list, err := widgets.in(version).List(t.Context(), metav1.ListOptions{})
		expect.NoError(t, err)
		got := map[string]any{}
		for _, item := range list.Items {
			got[item.GetName()] = item.Object["spec"]
			if item.GetAPIVersion() != widgets.group+"/"+version {
				t.Errorf("%s has the version %s in a list of %s", item.GetName(), item.GetAPIVersion(), version)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("list of %s (-want +got):\n%s", version, diff)
		}
	}
	if got := widgets.get(t, "v1", "second"); got.GetUID() != second.GetUID() || got.GetResourceVersion() != second.GetResourceVersion() {
		t.Errorf("the object is another in v1: %v", got)
	}

	event := nextEvent(t, events)
	seen, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type != watch.Added || seen.GetName() != "second" || field(seen, "spec", "host") != "two" {
		t.Errorf("the watch of v2 saw %v", event)
	}
	widgets.mustPatch(t, "v2", "first", `{"spec": {"port": "11"}}`)
	if got := field(widgets.get(t, "v1", "first"), "spec", "address"); got != "one:11" {
		t.Errorf("after a patch through v2 v1 has the address %v", got)
	}
	if stored := etcdValue(t, widgets.annex.etcd(t), widgets.key("second")); !strings.Contains(string(stored), `"address":"two:2"`) {
		t.Errorf("etcd holds %s, want v1", stored)
	}
}

// While a conversion webhook fails, its version returns errors and never wrong objects.
// The stored version is still served.
func TestConversionWebhookFailures(t *testing.T) {
	t.Parallel()
	// Not the shared server: deleting any namespace lists all resources, including these.
	a := startAnnex(t)
	refuse := func(change func(*apiextensionsv1.ConversionResponse)) *apiextensionsv1.WebhookConversion {
		return crds.Converter(func(ctx context.Context, request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
			response := convertAddresses(ctx, request)
			change(response)
			return response
		}).Start(t)
	}
	rename := func(response *apiextensionsv1.ConversionResponse) {
		for i, object := range response.ConvertedObjects {
			response.ConvertedObjects[i].Raw = []byte(strings.Replace(string(object.Raw), `"name":"there"`, `"name":"other"`, 1))
		}
	}
	down := convertAddresses.Start(t)
	down.ClientConfig.URL = new("https://" + freeport.Refusing(t))
	untrusted := convertAddresses.Start(t)
	untrusted.ClientConfig.CABundle = nil
	service := &apiextensionsv1.WebhookConversion{
		ClientConfig:             &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "default", Name: "converter"}},
		ConversionReviewVersions: []string{"v1"},
	}
	tests := map[string]struct {
		webhook *apiextensionsv1.WebhookConversion
		want    string
	}{
		"down":            {down, "connection refused"},
		"not trusted":     {untrusted, "certificate signed by unknown authority"},
		"a Service":       {service, "a standalone annex has no Services: set clientConfig.url instead of clientConfig.service"},
		"wrong uid":       {refuse(func(r *apiextensionsv1.ConversionResponse) { r.UID = "wrong" }), "expected response.uid="},
		"dropped objects": {refuse(func(r *apiextensionsv1.ConversionResponse) { r.ConvertedObjects = nil }), "returned 0 objects, expected 1"},
		"another name":    {refuse(rename), "must have the same name: there != other"},
		"failure": {refuse(func(r *apiextensionsv1.ConversionResponse) {
			r.Result = metav1.Status{Status: metav1.StatusFailure, Message: "out of luck"}
		}), "out of luck"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			widgets := a.installConvertedCRD(t, test.webhook)
			widgets.create(t, "v1", "there", "spec: {address: 'one:1'}")
			for what, got := range map[string]response{
				"get":    widgets.annex.get(t, widgets.path("v2")+"/there"),
				"list":   widgets.annex.get(t, widgets.path("v2")),
				"create": widgets.annex.request(t, http.MethodPost, widgets.path("v2"), `{"apiVersion": "`+widgets.group+`/v2", "kind": "Widget", "metadata": {"name": "there"}}`),
			} {
				if got.Code != http.StatusInternalServerError || !strings.Contains(string(got.Body), "conversion webhook for") || !strings.Contains(string(got.Body), test.want) {
					t.Errorf("%s through v2: got %s, want 500 with %q", what, got, test.want)
				}
			}
			// Before or after the response has begun, by the time that takes.
			watched := string(widgets.annex.get(t, widgets.path("v2")+"?watch=true&timeoutSeconds=60").Body)
			if !strings.Contains(watched, test.want) || !strings.Contains(watched, `"retryAfterSeconds":1},"code":429}`) {
				t.Errorf("watch of v2: got %s, want 429 with %q", watched, test.want)
			}
			widgets.waitForObjectsReadable(t, a, "False Lists and watches fail. v2: ")
			widgets.wantNames(t, "through v1", "there")
			if got := field(widgets.get(t, "v1", "there"), "spec", "address"); got != "one:1" {
				t.Errorf("through v1 the address is %v", got)
			}
		})
	}
}

// A webhook that hangs delays only its own version, and only until the timeout of the
// request.
func TestSlowConversionWebhook(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	slow := crds.Converter(func(ctx context.Context, request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
		asked <- struct{}{}
		<-ctx.Done()
		return nil
	})
	widgets := startAnnex(t).installConvertedCRD(t, slow.Start(t))
	widgets.create(t, "v1", "there", "spec: {address: 'one:1'}")

	answered := make(chan error, 1)
	go func() {
		// Long enough to reach the webhook on a busy machine: nothing else reads v2.
		const timeout = 10 * time.Second
		started := time.Now()
		got, err := clients.Send(t.Context(), widgets.annex.HTTP, http.MethodGet, widgets.annex.URL+widgets.path("v2")+"/there?timeout="+timeout.String(), "")
		took := time.Since(started)
		if err == nil && (got.Code != http.StatusGatewayTimeout && got.Code != http.StatusInternalServerError) {
			err = fmt.Errorf("got %s, want an error of the server", got)
		}
		if err == nil && took < timeout {
			err = errors.New("the response came before the timeout")
		}
		answered <- err
	}()
	select {
	case <-asked:
	case <-time.After(poll.Timeout):
		t.Fatal("the webhook was not called")
	}
	widgets.create(t, "v1", "another", "spec: {address: 'two:2'}")
	if got := widgets.names(t, "v1", metav1.ListOptions{}); len(got) != 2 {
		t.Errorf("while the webhook hangs v1 lists %v", got)
	}
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(poll.Timeout):
		t.Errorf("no answer within %s", poll.Timeout)
	}
}
