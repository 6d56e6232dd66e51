// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	apiserviceaccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/annex-dev/annex/pkg/standalone/serviceaccount"
)

const (
	// minLifetime and maxLifetime are Kubernetes' limits, in seconds.
	minLifetime int64 = 10 * 60
	maxLifetime int64 = 1 << 32
)

// errDeleting: a token of a deleted object would be invalid.
var errDeleting = errors.New("it is being deleted, a token would be invalid")

var tokenRequestKind = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// tokenREST is the endpoint serviceaccounts/token, which issues tokens.
type tokenREST struct {
	config          serviceaccount.TokenConfig
	serviceAccounts rest.Getter
	secrets         rest.Getter
	now             func() time.Time
}

var (
	_ rest.NamedCreater                   = (*tokenREST)(nil)
	_ rest.GroupVersionKindProvider       = (*tokenREST)(nil)
	_ rest.SubresourceObjectMetaPreserver = (*tokenREST)(nil)
)

func newTokenREST(config serviceaccount.TokenConfig, serviceAccounts, secrets rest.Getter) *tokenREST {
	return &tokenREST{config: config, serviceAccounts: serviceAccounts, secrets: secrets, now: time.Now}
}

// New implements rest.Storage.
func (r *tokenREST) New() runtime.Object { return &authenticationv1.TokenRequest{} }

// Destroy implements rest.Storage.
func (r *tokenREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (r *tokenREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return tokenRequestKind
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID of a request,
// which is a precondition.
func (r *tokenREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements rest.NamedCreater.
func (r *tokenREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	request := obj.(*authenticationv1.TokenRequest)
	if err := checkNames(ctx, name, request); err != nil {
		return nil, err
	}
	found, err := r.serviceAccounts.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	serviceAccount := found.(*corev1.ServiceAccount)
	if request.UID != "" && request.UID != serviceAccount.UID {
		return nil, conflict(tokenRequestKind, name, "service account", request.UID, serviceAccount.UID)
	}
	if serviceAccount.DeletionTimestamp != nil {
		return nil, apierrors.NewConflict(corev1.Resource("serviceaccounts"), name, errDeleting)
	}

	now := r.now()
	r.complete(request, serviceAccount, now)
	if errs := validateLifetime(request); len(errs) > 0 {
		return nil, apierrors.NewInvalid(tokenRequestKind.GroupKind(), "", errs)
	}
	if validate != nil {
		if err := validate(ctx, request.DeepCopy()); err != nil {
			return nil, err
		}
	}
	secret, err := r.boundSecret(ctx, request.Spec.BoundObjectRef)
	if err != nil {
		return nil, err
	}
	r.shorten(ctx, request)
	expires := now.Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second)
	token, err := r.config.Issuer.Issue(serviceaccount.Grant{
		ServiceAccount: serviceAccount, Secret: secret, Audiences: request.Spec.Audiences, IssuedAt: now, Expires: expires,
	})
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	audit.AddAuditAnnotation(ctx, apiserviceaccount.IssuedCredentialIDAuditAnnotationKey, token.CredentialID)
	issued := request.DeepCopy()
	issued.Status = authenticationv1.TokenRequestStatus{Token: token.Signed, ExpirationTimestamp: metav1.NewTime(expires)}
	return issued, nil
}

// checkNames rejects a request with a name different from its path.
func checkNames(ctx context.Context, name string, request *authenticationv1.TokenRequest) error {
	var errs field.ErrorList
	path := field.NewPath("metadata")
	if request.Name != "" && request.Name != name {
		errs = append(errs, field.Invalid(path.Child("name"), request.Name, "must match the service account name if specified"))
	}
	if namespace := genericapirequest.NamespaceValue(ctx); request.Namespace != "" && request.Namespace != namespace {
		errs = append(errs, field.Invalid(path.Child("namespace"), request.Namespace, "must match the service account namespace if specified"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(tokenRequestKind.GroupKind(), name, errs)
	}
	return nil
}

// complete sets the defaults of a request and clears its status.
func (r *tokenREST) complete(request *authenticationv1.TokenRequest, serviceAccount *corev1.ServiceAccount, now time.Time) {
	request.Name, request.Namespace, request.UID = serviceAccount.Name, serviceAccount.Namespace, serviceAccount.UID
	request.CreationTimestamp = metav1.NewTime(now)
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = r.config.Audiences
	}
	request.Status = authenticationv1.TokenRequestStatus{}
}

func validateLifetime(request *authenticationv1.TokenRequest) field.ErrorList {
	path := field.NewPath("spec", "expirationSeconds")
	switch seconds := request.Spec.ExpirationSeconds; {
	case seconds == nil:
		return field.ErrorList{field.Required(path, "")}
	case *seconds < minLifetime:
		return field.ErrorList{field.Invalid(path, *seconds, "may not specify a duration less than 10 minutes")}
	case *seconds > maxLifetime:
		return field.ErrorList{field.Invalid(path, *seconds, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}

// boundSecret returns the Secret that the token is bound to, or nil.
func (r *tokenREST) boundSecret(ctx context.Context, bound *authenticationv1.BoundObjectReference) (*corev1.Secret, error) {
	if bound == nil {
		return nil, nil
	}
	kind := schema.FromAPIVersionAndKind(bound.APIVersion, bound.Kind)
	switch {
	case kind.Group == corev1.GroupName && (kind.Kind == "Pod" || kind.Kind == "Node"):
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind a token to a %s: annex has no %ss, only Secrets can be bound to", kind.Kind, kind.Kind))
	case kind.Group != corev1.GroupName || kind.Kind != "Secret":
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind))
	}
	found, err := r.secrets.Get(secretContext(ctx, bound.Name), bound.Name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	secret := found.(*corev1.Secret)
	switch {
	case bound.UID != "" && bound.UID != secret.UID:
		return nil, conflict(corev1.SchemeGroupVersion.WithKind("Secret"), bound.Name, "Secret", bound.UID, secret.UID)
	case secret.DeletionTimestamp != nil:
		return nil, apierrors.NewConflict(corev1.Resource("secrets"), bound.Name, errDeleting)
	}
	return secret, nil
}

// secretContext returns the context of a request for the Secret, for errors and metrics.
func secretContext(ctx context.Context, name string) context.Context {
	return genericapirequest.WithRequestInfo(ctx, &genericapirequest.RequestInfo{
		IsResourceRequest: true,
		Verb:              "get",
		APIVersion:        corev1.SchemeGroupVersion.Version,
		Namespace:         genericapirequest.NamespaceValue(ctx),
		Resource:          "secrets",
		Name:              name,
		Parts:             []string{"secrets", name},
	})
}

// shorten limits the lifetime to the maximum of the server, with a warning.
func (r *tokenREST) shorten(ctx context.Context, request *authenticationv1.TokenRequest) {
	asked, allowed := *request.Spec.ExpirationSeconds, int64(r.config.MaxLifetime/time.Second)
	if allowed > 0 && asked > allowed {
		warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, allowed))
		request.Spec.ExpirationSeconds = new(allowed)
	}
}

func conflict(kind schema.GroupVersionKind, name, what string, asked, current types.UID) error {
	return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, name,
		fmt.Errorf("the request is for the %s with UID %s, but its UID is %s: it may have been deleted and recreated", what, asked, current))
}
