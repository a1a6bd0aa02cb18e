// SPDX-License-Identifier: Apache-2.0
//
// A program outside of the tree that is linked with every module as a whole (install_test.py), so a
// library that any of them needs and weir.pc does not name is missing here. It uses the one that
// needs most.
#include <cstdio>

#include "weir/cluster/etcd_client.h"

int main() {
  const auto etcd = weir::cluster::EtcdClient::create({.endpoints = {"127.0.0.1:1"}});
  if (!etcd) return 1;
  const auto listed = (*etcd)->list("/weir");  // nobody is there
  std::puts(listed ? "listed" : listed.error().message().c_str());
  return listed ? 1 : 0;
}
