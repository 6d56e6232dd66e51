// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	aggregatorlisters "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
)

type definition = apiextensionsv1.CustomResourceDefinition

// view holds the objects of one group from the caches. They must not be changed.
type view struct {
	group            string
	annexDefinitions []*definition
	mainDefinitions  []*definition
	// apiServices are those of the group in the main cluster, by version.
	apiServices map[string]*apiService
	hosted      []*hosted
}

// servedVersions are the versions that annex's definitions serve, the most mature
// first.
func (v *view) servedVersions() []string {
	served := map[string]bool{}
	for _, crd := range v.annexDefinitions {
		for _, version := range versionsServedBy(crd) {
			served[version] = true
		}
	}
	return byMaturity(slices.Collect(maps.Keys(served)))
}

// isServed reports whether annex serves a version, and its definition is not being
// deleted.
func (v *view) isServed(version string) bool {
	return slices.ContainsFunc(v.annexDefinitions, func(crd *definition) bool {
		return crd.DeletionTimestamp.IsZero() && apiextensionshelpers.HasServedCRDVersion(crd, version) &&
			apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
}

// staleVersions are versions that annex published with its present data and no longer
// serves.
func (v *view) staleVersions(p template) []string {
	left := v.publishedOnly(p, func(store string) bool { return store == string(p.store) })
	return slices.DeleteFunc(left, v.isAwaited)
}

// isAwaited reports whether annex is about to serve a version again, because a labelled
// definition of the main cluster has it. Without its APIService the main cluster would
// serve it in the meantime, and store new objects.
func (v *view) isAwaited(version string) bool {
	return slices.ContainsFunc(v.mainDefinitions, func(crd *definition) bool {
		return crd.Labels[hostingv1alpha1.HostedLabel] == "true" && crd.DeletionTimestamp.IsZero() &&
			apiextensionshelpers.HasServedCRDVersion(crd, version)
	})
}

// mismatchedVersions are versions that annex published with other data, and does not
// serve. They are kept: an annex with the data restored needs them, and without them the
// main cluster might serve the group itself.
func (v *view) mismatchedVersions(p template) []string {
	return v.publishedOnly(p, func(store string) bool { return store != string(p.store) })
}

// publishedOnly returns versions that annex published with matching data and does not
// serve.
func (v *view) publishedOnly(p template, matches func(store string) bool) []string {
	if p.store == "" {
		return nil
	}
	served := v.servedVersions()
	var versions []string
	for version, current := range v.apiServices {
		if p.ownerOf(current) == annex && !slices.Contains(served, version) &&
			matches(current.Annotations[hostingv1alpha1.PublishedStoreAnnotation]) {
			versions = append(versions, version)
		}
	}
	return byMaturity(versions)
}

func dataReplacedMessage(current *apiService) string {
	return fmt.Sprintf("APIService %s was published by an annex whose store %q had the UID %q, and this one does not serve it: check --data-dir and --etcd-servers of annex, or restore that data. docs/publishing.md describes how to start without it",
		current.Name, hostingv1alpha1.DefaultStoreName, current.Annotations[hostingv1alpha1.PublishedStoreAnnotation])
}

// notCleared returns, sorted by name, the definitions of the main cluster whose takeover
// is not cleared. All definitions of a group are taken over together.
func (v *view) notCleared(annexDefinitions []*definition, annexHosted []*hosted) []*definition {
	var names []*definition
	for _, crd := range v.mainDefinitions {
		if len(versionsServedBy(crd)) > 0 && !isCleared(crd, annexDefinitions, annexHosted) {
			names = append(names, crd)
		}
	}
	slices.SortFunc(names, func(a, b *definition) int { return strings.Compare(a.Name, b.Name) })
	return names
}

// isCleared reports whether annex may serve a definition of the main cluster: annex was
// asked to, follows it, and has checked that its present definition hides no objects.
// Annotations prove nothing, since authors of definitions can write them; the status of a
// HostedResource is written only by annex.
func isCleared(main *definition, annexDefinitions []*definition, annexHosted []*hosted) bool {
	named := func(crd *definition) bool { return crd.Name == main.Name }
	index := slices.IndexFunc(annexDefinitions, named)
	if index < 0 || main.Labels[hostingv1alpha1.HostedLabel] != "true" {
		return false
	}
	crd := annexDefinitions[index]
	wanted := hostingv1alpha1.HostedResourceTakeover{DefinitionUID: crd.UID, DefinitionGeneration: crd.Generation}
	return crd.Annotations[hostingv1alpha1.DefinitionFromAnnotation] == hostingv1alpha1.DefinitionFromMain &&
		slices.ContainsFunc(annexHosted, func(resource *hosted) bool {
			return resource.Name == main.Name && resource.Status.Takeover != nil && *resource.Status.Takeover == wanted
		})
}

// blocked returns the state of the main cluster that forbids publishing a version, and
// false if there is none.
func (v *view) blocked(p template, version schema.GroupVersion) (status, bool) {
	for _, of := range byMaturity(slices.Collect(maps.Keys(v.apiServices))) {
		switch current := v.apiServices[of]; p.ownerOf(current) {
		case foreign:
			return notPublished(reasonForeignAPIService, foreignMessage(p, current)), true
		case mainBuiltIn:
			return notPublished(reasonGroupInMain, fmt.Sprintf(
				"The main cluster serves %s/%s itself, not from a CustomResourceDefinition that annex could take over", v.group, of)), true
		}
	}
	if inTheWay := v.notCleared(v.annexDefinitions, v.hosted); len(inTheWay) > 0 {
		return notPublished(reasonGroupInMain, v.notClearedMessage(inTheWay)), true
	}
	if p.ownerOf(v.apiServices[version.Version]) == mainDefinitions && !definedIn(v.mainDefinitions, version) {
		// kube-apiserver deletes it if its definition was just deleted.
		return notPublished(reasonGroupInMain, fmt.Sprintf(
			"The main cluster still has the local APIService %s, whose CustomResourceDefinition is gone", apiServiceName(version))), true
	}
	return status{}, false
}

// definedIn reports whether a definition serves a version.
func definedIn(definitions []*definition, version schema.GroupVersion) bool {
	return slices.ContainsFunc(definitions, func(crd *definition) bool {
		return crd.Spec.Group == version.Group && apiextensionshelpers.HasServedCRDVersion(crd, version.Version)
	})
}

// foreignMessage names the owner of an APIService, and how to hand it over to annex.
func foreignMessage(p template, current *apiService) string {
	to := current.Spec.Service
	message := fmt.Sprintf("APIService %s in the main cluster sends requests to Service %s/%s", current.Name, to.Namespace, to.Name)
	if by := current.Labels[hostingv1alpha1.PublishedByLabel]; by != "" {
		return fmt.Sprintf("%s and belongs to the annex that publishes as %q", message, by)
	}
	if to.Namespace == p.service.Namespace && to.Name == p.service.Name {
		return fmt.Sprintf("%s, but annex did not make it: hand it over with kubectl label apiservice %s %s=%s",
			message, current.Name, hostingv1alpha1.PublishedByLabel, p.publishedBy())
	}
	return message + ", not to annex"
}

// notClearedMessage lists the definitions, and how to label those without a label if the condition DefinitionSynced does
// not say what to do: a Migration may be labelling them.
func (v *view) notClearedMessage(inTheWay []*definition) string {
	var names, unlabelled []string
	for _, crd := range inTheWay {
		names = append(names, crd.Name)
		if crd.Labels[hostingv1alpha1.HostedLabel] != "true" {
			unlabelled = append(unlabelled, crd.Name)
		}
	}
	message := fmt.Sprintf("The main cluster serves %s from CustomResourceDefinitions of its own that annex has not taken over: %s",
		v.group, strings.Join(names, ", "))
	switch {
	case slices.ContainsFunc(v.hosted, func(resource *hosted) bool {
		return meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceDefinitionSynced) != nil
	}):
		return message + ". See the condition " + hostingv1alpha1.HostedResourceDefinitionSynced
	case len(unlabelled) == 0:
		return message
	}
	return fmt.Sprintf("%s. Let annex take them over: kubectl label crd %s %s=true", message, strings.Join(unlabelled, " "), hostingv1alpha1.HostedLabel)
}

func versionsServedBy(crd *definition) []string {
	var served []string
	for _, version := range crd.Spec.Versions {
		if version.Served {
			served = append(served, version.Name)
		}
	}
	return served
}

// byMaturity sorts versions as Kubernetes does: v2, v1, v1beta1.
func byMaturity(versions []string) []string {
	slices.SortFunc(versions, func(a, b string) int { return apimachineryversion.CompareKubeAwareVersionStrings(b, a) })
	return versions
}

// listers read from informers.
type listers struct {
	mainAPIServices  aggregatorlisters.APIServiceLister
	mainDefinitions  apiextensionslisters.CustomResourceDefinitionLister
	annexDefinitions apiextensionslisters.CustomResourceDefinitionLister
	annexHosted      hostinglisters.HostedResourceLister
}

func newListers(config Config) listers {
	return listers{
		mainAPIServices:  config.MainAPIServiceInformer.Lister(),
		mainDefinitions:  config.MainDefinitionInformer.Lister(),
		annexDefinitions: config.AnnexDefinitionInformer.Lister(),
		annexHosted:      config.AnnexHostedInformer.Lister(),
	}
}

// snapshot holds all objects.
type snapshot struct {
	apiServices                       []*apiService
	mainDefinitions, annexDefinitions []*definition
	hosted                            []*hosted
}

func (c listers) list() (snapshot, error) {
	var all snapshot
	var err error
	if all.apiServices, err = c.mainAPIServices.List(labels.Everything()); err != nil {
		return all, fmt.Errorf("list APIServices of the main cluster: %w", err)
	}
	if all.mainDefinitions, err = c.mainDefinitions.List(labels.Everything()); err != nil {
		return all, fmt.Errorf("list custom resource definitions of the main cluster: %w", err)
	}
	if all.annexDefinitions, err = c.annexDefinitions.List(labels.Everything()); err != nil {
		return all, fmt.Errorf("list custom resource definitions: %w", err)
	}
	if all.hosted, err = c.annexHosted.List(labels.Everything()); err != nil {
		return all, fmt.Errorf("list hosted resources: %w", err)
	}
	return all, nil
}

// view selects the objects of one group.
func (c listers) view(group string) (*view, error) {
	all, err := c.list()
	if err != nil {
		return nil, err
	}
	v := &view{
		group:            group,
		annexDefinitions: ofGroup(all.annexDefinitions, group),
		mainDefinitions:  ofGroup(all.mainDefinitions, group),
		apiServices:      map[string]*apiService{},
	}
	for _, current := range all.apiServices {
		if current.Spec.Group == group {
			v.apiServices[current.Spec.Version] = current
		}
	}
	for _, resource := range all.hosted {
		if schema.ParseGroupResource(resource.Name).Group == group {
			v.hosted = append(v.hosted, resource)
		}
	}
	return v, nil
}

func ofGroup(definitions []*definition, group string) []*definition {
	var of []*definition
	for _, crd := range definitions {
		if crd.Spec.Group == group {
			of = append(of, crd)
		}
	}
	return of
}

// groups returns the groups that annex serves or may have served.
func (c listers) groups() ([]string, error) {
	all, err := c.list()
	if err != nil {
		return nil, err
	}
	groups := map[string]bool{}
	for _, crd := range all.annexDefinitions {
		groups[crd.Spec.Group] = true
	}
	for _, resource := range all.hosted {
		groups[schema.ParseGroupResource(resource.Name).Group] = true
	}
	for _, current := range all.apiServices {
		if current.Spec.Service != nil {
			groups[current.Spec.Group] = true
		}
	}
	delete(groups, hostingVersion.Group)
	return slices.Sorted(maps.Keys(groups)), nil
}
