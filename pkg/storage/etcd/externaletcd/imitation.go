// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package externaletcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// notEtcd is the error for a server that imitates a part of etcd, such as kine: enough for
// kube-apiserver, but annex's requests have more conditions.
func notEtcd(format string, args ...any) error {
	return fmt.Errorf("is not an etcd, it only imitates one: %s. annex would lose changes there, and needs a real etcd", fmt.Sprintf(format, args...))
}

// CheckTransactions returns an error if the server does not perform transactions as etcd does. It
// reads only, and returns nil if the server does not answer.
func CheckTransactions(ctx context.Context, kv clientv3.KV) error {
	const key = "/annex/"
	always := clientv3.Compare(clientv3.CreateRevision(key), ">", -1).WithPrefix()
	never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
	response, err := kv.Txn(ctx).If(always).Then(clientv3.OpTxn([]clientv3.Cmp{never}, nil, []clientv3.Op{clientv3.OpGet(key)})).Commit()
	if err != nil {
		// Only an etcd has errors with etcd's own texts, such as about rights.
		var ofEtcd rpctypes.EtcdError
		switch code := status.Code(err); {
		case errors.As(err, &ofEtcd):
		case code == codes.Unimplemented, code == codes.InvalidArgument, code == codes.Unknown && ctx.Err() == nil:
			return notEtcd("it does not perform transactions as etcd does: %.200s", status.Convert(err).Message())
		}
		return nil
	}
	if response.Header.GetClusterId() == 0 {
		return notEtcd("its answers name no cluster")
	}
	if response.Succeeded && len(response.Responses) == 1 {
		inner := response.Responses[0].GetResponseTxn()
		if answers := inner.GetResponses(); !inner.GetSucceeded() && len(answers) == 1 && answers[0].GetResponseRange() != nil {
			return nil
		}
	}
	return notEtcd("it answers a transaction otherwise than etcd")
}
