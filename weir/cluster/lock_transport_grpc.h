// SPDX-License-Identifier: Apache-2.0
//
// The gRPC server of a LockService: streams of clients, lists and statistics, with or without TLS.
// It makes the streams, and passes calls to the owner's thread.
//
// Exposes gRPC types, so it is private to this module and not installed.
#pragma once

#include <memory>

#include <grpcpp/grpcpp.h>

#include "weir/cluster/credentials.h"
#include "weir/cluster/lock.grpc.pb.h"
#include "weir/cluster/lock_owner_grpc.h"
#include "weir/cluster/lock_service.h"

namespace weir::cluster {

class LockService::Transport : public lock::v1::Locks::CallbackService {
 public:
  // REQUIRES: the owner outlives it.
  explicit Transport(Owner& owner) : owner_(owner) {}

  // Serves when it returns.
  Result<void> open(const LockServiceOptions& options);
  const serve::ListenAddress& listening() const { return listening_; }
  Credentials& credentials() { return *credentials_; }
  // Waits until all streams have ended, a short time at most.
  void shut_down();

  grpc::ServerBidiReactor<lock::v1::ClientBatch, lock::v1::ServerBatch>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const lock::v1::ListRequest* request,
                                 lock::v1::ListReply* reply) override;
  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context,
                                  const lock::v1::StatsRequest* request,
                                  lock::v1::StatsReply* reply) override;

 private:
  template <class Function>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Function function);

  Owner& owner_;
  serve::ListenAddress listening_;
  std::unique_ptr<Credentials> credentials_;  // declared before the server, which uses it
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace weir::cluster
