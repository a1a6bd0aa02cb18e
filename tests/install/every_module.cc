// SPDX-License-Identifier: Apache-2.0
//
// A program outside the tree that is linked with the whole archive of every module
// (install_test.py), so linking fails if weir.pc does not name a library that one of them needs. It
// uses the module with the most dependencies.
#include <cstdio>

#include "weir/cluster/etcd_client.h"

int main() {
  const auto etcd = weir::cluster::EtcdClient::create({.endpoints = {"127.0.0.1:1"}});
  if (!etcd) return 1;
  const auto listed = (*etcd)->list("/weir");  // no etcd is running
  std::puts(listed ? "listed" : listed.error().message().c_str());
  return listed ? 1 : 0;
}
