// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/aggregated/servingca"
)

// Main says which cluster annex stands behind, if any.
type Main struct {
	// Kubeconfig is the path of a kubeconfig of the main cluster.
	Kubeconfig string
	// InCluster uses the service account of the pod that annex runs in.
	InCluster bool
	// PublishService is the Service through which the main cluster reaches annex.
	PublishService maincluster.Service
	// PublishCAFile holds the authorities that signed --tls-cert-file, for the
	// main cluster to verify it with. Empty with a certificate of annex's own.
	PublishCAFile string

	// ServingCA says how long the certificates live that the main cluster verifies
	// annex with.
	ServingCA servingca.Lifetimes

	// Login and Reviews tune what annex asks of the main cluster for each request.
	Login   maincluster.AuthenticationOptions
	Reviews maincluster.AuthorizationOptions
}

// NewMain returns the defaults: annex stands alone.
func NewMain() *Main {
	return &Main{
		PublishService: maincluster.DefaultService(),
		ServingCA:      servingca.DefaultLifetimes(),
		Login:          maincluster.DefaultAuthenticationOptions(),
		Reviews:        maincluster.DefaultAuthorizationOptions(),
	}
}

// AddFlags adds the flags; those of upstream's delegating options keep their names.
func (o *Main) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "main-kubeconfig", o.Kubeconfig,
		"Stand behind the cluster that this kubeconfig reaches: it says who may log in and act, and it sends the requests for annex's resources here.")
	fs.BoolVar(&o.InCluster, "main-in-cluster", o.InCluster,
		"Stand behind the cluster that annex runs in, with the rights of its pod's service account.")
	fs.Var(&o.PublishService, "publish-service",
		"The Service in the main cluster through which it reaches annex. annex's APIServices point there.")
	fs.StringVar(&o.PublishCAFile, "publish-ca-file", o.PublishCAFile,
		"With --tls-cert-file, the authorities that the main cluster verifies that certificate with; without a main cluster, what the ConfigMaps "+
			"kube-root-ca.crt give to clients for that. It is read again when it changes.")
	fs.DurationVar(&o.ServingCA.CA, "serving-ca-lifetime", o.ServingCA.CA,
		"How long a CA lives that the replicas behind a main cluster share. The next one is made when a third of it is left.")
	fs.DurationVar(&o.ServingCA.Certificate, "serving-certificate-lifetime", o.ServingCA.Certificate,
		"How long a certificate lives that is signed by the shared CA. The next one is made when a third of it is left.")
	fs.DurationVar(&o.ServingCA.Propagation, "serving-ca-propagation", o.ServingCA.Propagation,
		"How long every APIService must have carried a new CA before annex serves with a certificate of it.")
	// The defaults fit; tests cannot wait for them.
	hide(fs, "serving-ca-lifetime", "serving-certificate-lifetime", "serving-ca-propagation")
	fs.DurationVar(&o.Login.TokenCacheTTL, "authentication-token-webhook-cache-ttl", o.Login.TokenCacheTTL,
		"How long the answer about a token is remembered that the main cluster, or the webhook, gave.")
	fs.Float32Var(&o.Reviews.QPS, "authorization-webhook-qps", o.Reviews.QPS,
		"How many SubjectAccessReviews a second annex asks for at the most; -1 for no limit.")
	fs.IntVar(&o.Reviews.Burst, "authorization-webhook-burst", o.Reviews.Burst,
		"How many SubjectAccessReviews annex may ask for at once.")
}

// Enabled reports whether annex stands behind a cluster.
func (o *Main) Enabled() bool { return o.InCluster || o.Kubeconfig != "" }

// Location says how to reach the main cluster.
func (o *Main) Location() maincluster.Location { return maincluster.Location{Kubeconfig: o.Kubeconfig} }

// Validate checks the flags; the main cluster is not asked.
func (o *Main) Validate(ownCertificate bool) []error {
	var errs []error
	switch {
	case o.InCluster && o.Kubeconfig != "":
		errs = append(errs, errors.New("--main-kubeconfig and --main-in-cluster cannot be combined: set one of them"))
	case o.Enabled() && !ownCertificate && o.PublishCAFile == "":
		errs = append(errs, errors.New("--tls-cert-file needs --publish-ca-file, for the main cluster to verify that certificate"))
	case ownCertificate && o.PublishCAFile != "":
		errs = append(errs, errors.New("--publish-ca-file belongs to --tls-cert-file: without it annex publishes its own authority"))
	}
	if err := o.ServingCA.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--serving-ca-lifetime, --serving-certificate-lifetime, --serving-ca-propagation: %w", err))
	}
	if o.Reviews.QPS == 0 || o.Reviews.Burst <= 0 {
		errs = append(errs, fmt.Errorf("--authorization-webhook-qps %v and --authorization-webhook-burst %d must be greater than 0", o.Reviews.QPS, o.Reviews.Burst))
	}
	if o.Login.TokenCacheTTL < 0 || o.Reviews.AllowCacheTTL < 0 || o.Reviews.DenyCacheTTL < 0 {
		errs = append(errs, errors.New("--authentication-token-webhook-cache-ttl, --authorization-webhook-cache-authorized-ttl and --authorization-webhook-cache-unauthorized-ttl must not be negative"))
	}
	return errs
}
