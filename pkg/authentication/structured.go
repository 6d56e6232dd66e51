// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"

	"github.com/annex-dev/annex/pkg/configfile"
)

// errNotRunning is returned for a token before Run.
var errNotRunning = errors.New("the keys of the JWT issuers have not been fetched yet")

// Structured authenticates callers by an AuthenticationConfiguration: by the JWTs of
// its issuers and, on the paths that it names, anonymously. The configuration may
// change while annex serves.
type Structured struct {
	options StructuredOptions
	// started is the configuration at the start of annex. Run applies it.
	started *apiserver.AuthenticationConfiguration
	data    []byte

	current atomic.Pointer[authenticatorSet]
	// retiring are replaced sets that still serve requests.
	retiring sync.WaitGroup
}

// StructuredOptions configure a Structured.
type StructuredOptions struct {
	// Path is the file; empty means none.
	Path string
	// OpenPaths allow anonymous requests unless the file configures them.
	OpenPaths []string
	// OwnIssuers are issuers of annex's own tokens: the file must not name them.
	OwnIssuers []string
	// APIServerID identifies this server in metrics.
	APIServerID string
}

// NewStructured reads and validates the file. It fetches no keys before Run.
func NewStructured(o StructuredOptions) (*Structured, error) {
	s := &Structured{options: o, started: &apiserver.AuthenticationConfiguration{}}
	if o.Path != "" {
		var err error
		if s.data, err = os.ReadFile(o.Path); err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		if s.started, err = s.load(s.data); err != nil {
			return nil, configfile.Explain(o.Path, s.data, err)
		}
	}
	s.current.Store(&authenticatorSet{
		jwt: authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
			return nil, false, errNotRunning
		}),
		anonymous: s.anonymous(s.started),
		cancel:    func() {},
	})
	return s, nil
}

// AuthenticateToken authenticates with the current issuers.
func (s *Structured) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return s.current.Load().jwt.AuthenticateToken(ctx, token)
}

// AuthenticateAnonymous authenticates requests without credentials as anonymous on the
// paths that the current configuration names.
func (s *Structured) AuthenticateAnonymous(req *http.Request) (*authenticator.Response, bool, error) {
	allowed := s.current.Load().anonymous
	if allowed == nil {
		return nil, false, nil
	}
	return allowed.AuthenticateRequest(req)
}

// anonymous returns nil if no request may be anonymous.
func (s *Structured) anonymous(config *apiserver.AuthenticationConfiguration) authenticator.Request {
	switch {
	case config.Anonymous == nil:
		var conditions []apiserver.AnonymousAuthCondition
		for _, path := range s.options.OpenPaths {
			conditions = append(conditions, apiserver.AnonymousAuthCondition{Path: path})
		}
		return anonymous.NewAuthenticator(conditions)
	case !config.Anonymous.Enabled:
		return nil
	}
	return anonymous.NewAuthenticator(config.Anonymous.Conditions)
}

// hasFile reports whether there is a file, which may add issuers later.
func (s *Structured) hasFile() bool { return s != nil && s.options.Path != "" }
