// Preloaded into SimGrid 3.32: MPI_Test without a call of the simulator. SimGrid's own keeps each request that it
// completes in a list of the rank, which it later searches from end to end: a run of 100,000 messages a rank would take
// days. Here a request that the simulator has ended is completed by MPI_Wait, which takes it off that list.
#include <dlfcn.h>
#include <smpi/smpi.h>

#include <simgrid/kernel/resource/Action.hpp>
#include <simgrid/s4u/Link.hpp>
#include <unordered_map>
#include <utility>

namespace {

using Message = simgrid::kernel::activity::CommImpl;

/// All ranks are in one process and one thread.
struct Requests {
  std::unordered_map<void*, bool> ended;  ///< of the program's messages
  std::unordered_map<void const*, std::pair<void*, void*>> of_message;
};

Requests& requests() {
  static Requests all;
  return all;
}

void message_ended(simgrid::kernel::resource::NetworkAction& transfer, simgrid::kernel::resource::Action::State) {
  // Its class is not in SimGrid's headers, but has this one as its first base.
  auto const& action = reinterpret_cast<simgrid::kernel::resource::Action const&>(transfer);
  auto const found = requests().of_message.find(action.get_activity());
  if (found == requests().of_message.end()) {
    return;
  }
  for (void* const request : {found->second.first, found->second.second}) {
    if (auto const own = requests().ended.find(request); own != requests().ended.end()) {
      own->second = true;
    }
  }
  requests().of_message.erase(found);
}

void follow(MPI_Request request) {
  static bool const connected = [] {
    simgrid::s4u::Link::on_communication_state_change_cb(message_ended);
    return true;
  }();
  static_cast<void>(connected);
  requests().ended[request] = false;
}

using Match = bool (*)(void*, void*, Message*);

/// SimGrid's own function of that name.
Match original(char const* name) {
  return reinterpret_cast<Match>(dlsym(RTLD_NEXT, name));
}

bool matched(Match compare, void* one, void* other, Message* message) {
  bool const match = compare(one, other, message);
  if (match && message != nullptr) {
    requests().of_message[message] = {one, other};
  }
  return match;
}

}  // namespace

namespace simgrid::smpi {

/// SimGrid's class, of which only these two functions are replaced.
class Request {
 public:
  static bool match_recv(void* one, void* other, Message* message);
  static bool match_send(void* one, void* other, Message* message);
};

bool Request::match_recv(void* one, void* other, Message* message) {
  static Match const compare = original("_ZN7simgrid4smpi7Request10match_recvEPvS2_PNS_6kernel8activity8CommImplE");
  return matched(compare, one, other, message);
}

bool Request::match_send(void* one, void* other, Message* message) {
  static Match const compare = original("_ZN7simgrid4smpi7Request10match_sendEPvS2_PNS_6kernel8activity8CommImplE");
  return matched(compare, one, other, message);
}

}  // namespace simgrid::smpi

extern "C" {

int MPI_Isend(void const* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm group, MPI_Request* request) {
  int const code = PMPI_Isend(data, count, type, to, tag, group, request);
  follow(*request);
  return code;
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int from, int tag, MPI_Comm group, MPI_Request* request) {
  int const code = PMPI_Irecv(data, count, type, from, tag, group, request);
  follow(*request);
  return code;
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  MPI_Request const handle = *request;
  int const code = PMPI_Wait(request, status);
  requests().ended.erase(handle);
  return code;
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  auto const found = requests().ended.find(*request);
  if (found == requests().ended.end()) {
    return PMPI_Test(request, done, status);
  }
  *done = found->second ? 1 : 0;
  return found->second ? MPI_Wait(request, status) : MPI_SUCCESS;
}

}  // extern "C"
