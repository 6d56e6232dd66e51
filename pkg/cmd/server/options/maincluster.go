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

// Main configures the main cluster of an aggregated annex.
type Main struct {
	// Kubeconfig is a path.
	Kubeconfig string
	// InCluster uses the service account of annex's pod.
	InCluster bool
	// PublishService is the Service through which the main cluster reaches annex.
	PublishService maincluster.Service
	// PublishCAFile has the CAs of --tls-cert-file, for the main cluster. It is empty with
	// annex's own certificate.
	PublishCAFile string

	// ServingCA has the lifetimes of the serving certificates for the main cluster.
	ServingCA servingca.Lifetimes

	// Reviews tune authentication and authorization requests to the main cluster.
	Reviews maincluster.ReviewOptions
}

// NewMain returns the defaults: no main cluster.
func NewMain() *Main {
	return &Main{
		PublishService: maincluster.DefaultService(),
		ServingCA:      servingca.DefaultLifetimes(),
		Reviews:        maincluster.DefaultReviewOptions(),
	}
}

// AddFlags adds flags. Flags of upstream's delegating options keep their names.
func (o *Main) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "main-kubeconfig", o.Kubeconfig,
		"Kubeconfig of the main cluster: it authenticates and authorizes callers, and proxies requests for annex's resources to annex.")
	fs.BoolVar(&o.InCluster, "main-in-cluster", o.InCluster,
		"Use the cluster that annex runs in as the main cluster, with the service account of its pod.")
	fs.Var(&o.PublishService, "publish-service",
		"The Service in the main cluster that annex's APIServices refer to.")
	fs.StringVar(&o.PublishCAFile, "publish-ca-file", o.PublishCAFile,
		"File with the CAs of --tls-cert-file: for the main cluster or, without one, for the ConfigMaps kube-root-ca.crt. "+
			"It is reloaded when it changes.")
	fs.DurationVar(&o.ServingCA.CA, "serving-ca-lifetime", o.ServingCA.CA,
		"Lifetime of the CA that replicas share for the main cluster. It is renewed when a third is left.")
	fs.DurationVar(&o.ServingCA.Certificate, "serving-certificate-lifetime", o.ServingCA.Certificate,
		"Lifetime of certificates of the shared CA. They are renewed when a third is left.")
	fs.DurationVar(&o.ServingCA.Propagation, "serving-ca-propagation", o.ServingCA.Propagation,
		"How long every APIService must have had a new CA before annex serves with its certificate.")
	// These are for tests.
	hide(fs, "serving-ca-lifetime", "serving-certificate-lifetime", "serving-ca-propagation")
	fs.DurationVar(&o.Reviews.TokenCacheTTL, "authentication-token-webhook-cache-ttl", o.Reviews.TokenCacheTTL,
		"How long responses of the main cluster or the webhook about tokens are cached.")
	fs.Float32Var(&o.Reviews.QPS, "authorization-webhook-qps", o.Reviews.QPS,
		"The maximum number of SubjectAccessReviews per second. -1 means no limit.")
	fs.IntVar(&o.Reviews.Burst, "authorization-webhook-burst", o.Reviews.Burst,
		"The maximum burst of SubjectAccessReviews.")
}

// Enabled reports whether annex is aggregated.
func (o *Main) Enabled() bool { return o.InCluster || o.Kubeconfig != "" }

// Validate checks the flags. It does not connect to the main cluster.
func (o *Main) Validate(ownCertificate bool) []error {
	var errs []error
	switch {
	case o.InCluster && o.Kubeconfig != "":
		errs = append(errs, errors.New("--main-kubeconfig and --main-in-cluster cannot be combined: set one of them"))
	case o.Enabled() && !ownCertificate && o.PublishCAFile == "":
		errs = append(errs, errors.New("--tls-cert-file needs --publish-ca-file, for the main cluster to verify that certificate"))
	case ownCertificate && o.PublishCAFile != "":
		errs = append(errs, errors.New("--publish-ca-file needs --tls-cert-file: without it annex publishes its own CA"))
	}
	if err := o.ServingCA.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--serving-ca-lifetime, --serving-certificate-lifetime, --serving-ca-propagation: %w", err))
	}
	if o.Reviews.QPS == 0 || o.Reviews.Burst <= 0 {
		errs = append(errs, fmt.Errorf("--authorization-webhook-qps %v and --authorization-webhook-burst %d must be greater than 0", o.Reviews.QPS, o.Reviews.Burst))
	}
	if o.Reviews.TokenCacheTTL < 0 || o.Reviews.AllowCacheTTL < 0 || o.Reviews.DenyCacheTTL < 0 {
		errs = append(errs, errors.New("--authentication-token-webhook-cache-ttl, --authorization-webhook-cache-authorized-ttl and --authorization-webhook-cache-unauthorized-ttl must not be negative"))
	}
	return errs
}
