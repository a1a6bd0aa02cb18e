// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_stream_grpc.h"

#include <arpa/inet.h>
#include <sys/socket.h>

namespace weir::cluster {

serve::ClientIdentity identity_of(std::string_view text) {
  serve::ClientIdentity identity;
  sockaddr_storage address{};
  const auto last = text.rfind(':');
  if (text.starts_with("ipv4:")) {
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_family = AF_INET;
    inet_pton(AF_INET, std::string(text.substr(5, last - 5)).c_str(), &four.sin_addr);
  } else if (text.starts_with("ipv6:")) {
    std::string host(text.substr(5, last - 5));
    for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
      if (const auto at = host.find(bracket); at != std::string::npos) {
        host.erase(at, bracket.size());
      }
    }
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    inet_pton(AF_INET6, host.c_str(), &six.sin6_addr);
  } else {
    address.ss_family = AF_UNIX;
  }
  identity.nid = serve::nid_of(address);
  identity.is_local = serve::is_loopback(address);
  return identity;
}

std::string peer_text(std::string text) {
  if (text.starts_with("unix")) return "unix";
  const auto colon = text.find(':');
  text.erase(0, colon == std::string::npos ? 0 : colon + 1);
  for (const auto& [code, plain] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    if (const auto at = text.find(code); at != std::string::npos) text.replace(at, 3, plain);
  }
  return text;
}

std::string principal_of(const grpc::ServerContextBase& context) {
  const auto who = context.auth_context();
  for (const char* const property :
       {GRPC_X509_SUBJECT_PROPERTY_NAME, GRPC_X509_SAN_PROPERTY_NAME}) {
    std::string found;
    for (const grpc::string_ref& value : who->FindPropertyValues(property)) {
      if (!found.empty()) found += ' ';
      found.append(value.data(), value.size());
    }
    if (!found.empty()) return found;
  }
  return {};
}

grpc::Status stopping() { return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"}; }

}  // namespace weir::cluster
