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

// errNotRunning is what a token meets before Run.
var errNotRunning = errors.New("no issuer of JWTs was asked for its keys yet")

// Structured recognises callers as an AuthenticationConfiguration says: those whose
// JWT an issuer of it signed, and, on the paths that it names, those who show nothing.
// The configuration may change while annex serves.
type Structured struct {
	options StructuredOptions
	// started is what the file said when annex started. Run puts it in force.
	started *apiserver.AuthenticationConfiguration
	data    []byte

	current atomic.Pointer[authenticatorSet]
	// retiring are generations that were replaced and still answer.
	retiring sync.WaitGroup
}

// StructuredOptions say where a configuration is and what it is for.
type StructuredOptions struct {
	// Path is the file. Empty means that there is none.
	Path string
	// OpenPaths are those of anonymous callers where the file does not say.
	OpenPaths []string
	// OwnIssuers sign tokens that are recognised in another way: the file must not
	// name them.
	OwnIssuers []string
	// APIServerID tells this server from others in metrics.
	APIServerID string
}

// NewStructured reads and checks the file. Nobody is asked for keys before Run.
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

// AuthenticateToken asks the issuers in force.
func (s *Structured) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	return s.current.Load().jwt.AuthenticateToken(ctx, token)
}

// AuthenticateAnonymous lets callers in who showed nothing, where the configuration
// in force names the path.
func (s *Structured) AuthenticateAnonymous(req *http.Request) (*authenticator.Response, bool, error) {
	allowed := s.current.Load().anonymous
	if allowed == nil {
		return nil, false, nil
	}
	return allowed.AuthenticateRequest(req)
}

// anonymous is nil where nobody may be.
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

// hasFile is false where there is no issuer, nor will be.
func (s *Structured) hasFile() bool { return s != nil && s.options.Path != "" }
