// A library for LD_PRELOAD under which UDP is closed, as by a firewall that drops datagrams: sending one succeeds, and
// it never arrives. watch.sh uses it.
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

extern "C" ssize_t sendto(int socket, void const* bytes, std::size_t count, int flags, sockaddr const* to,
                          socklen_t length) {
  int type = 0;
  socklen_t size = sizeof type;
  bool const datagram = ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_DGRAM;
  if (datagram && to != nullptr && to->sa_family == AF_INET) {
    return static_cast<ssize_t>(count);
  }
  using Function = ssize_t (*)(int, void const*, std::size_t, int, sockaddr const*, socklen_t);
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "sendto"))(socket, bytes, count, flags, to, length);
}
