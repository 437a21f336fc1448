// Preloaded into SimGrid 3.32: MPI_Test without a call of the simulator. SimGrid's own keeps each request that it
// completes in a list of the rank, which it later searches from end to end: a run of 100,000 messages a rank would take
// days. Here a request that the simulator has ended is completed by MPI_Wait, which takes it off that list. An
// MPI_Iallgather is made of such messages: one to each other rank, as SimGrid's own and Open MPI's are.
#include <dlfcn.h>
#include <smpi/smpi.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <simgrid/kernel/resource/Action.hpp>
#include <simgrid/s4u/Link.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using Message = simgrid::kernel::activity::CommImpl;

/// The messages of a gather; its address is the program's request.
struct Gather {
  std::vector<MPI_Request> messages;
  std::size_t ended = 0;  ///< the first so many
};

/// All ranks are in one process and one thread.
struct Requests {
  std::unordered_map<void*, bool> ended;  ///< of the program's messages
  std::unordered_map<void const*, std::pair<void*, void*>> of_message;
  std::unordered_map<void const*, std::unique_ptr<Gather>> gathers;
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

/// Whether all messages have ended.
bool has_ended(Gather& gather) {
  while (gather.ended < gather.messages.size() && requests().ended.at(gather.messages[gather.ended])) {
    ++gather.ended;
  }
  return gather.ended == gather.messages.size();
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

int MPI_Iallgather(void const* data, int count, MPI_Datatype type, void* all, int all_count, MPI_Datatype all_type,
                   MPI_Comm group, MPI_Request* request) {
  // Heddle's tag of all-to-alls, which its groups of replicas do not make.
  constexpr int tag = 8192;
  int rank = 0;
  int ranks = 0;
  int bytes = 0;
  PMPI_Comm_rank(group, &rank);
  PMPI_Comm_size(group, &ranks);
  PMPI_Type_size(all_type, &bytes);
  auto const part = [&](int of) { return static_cast<char*>(all) + std::ptrdiff_t{bytes} * all_count * of; };
  void const* const own = data == MPI_IN_PLACE ? part(rank) : data;
  auto gather = std::make_unique<Gather>();
  for (int step = 1; step < ranks; ++step) {
    int const to = (rank + step) % ranks;
    int const from = (rank + ranks - step) % ranks;
    MPI_Irecv(part(from), all_count, all_type, from, tag, group, &gather->messages.emplace_back());
    MPI_Isend(own, data == MPI_IN_PLACE ? all_count : count, data == MPI_IN_PLACE ? all_type : type, to, tag, group,
              &gather->messages.emplace_back());
  }
  *request = reinterpret_cast<MPI_Request>(gather.get());
  requests().gathers[gather.get()] = std::move(gather);
  return MPI_SUCCESS;
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  MPI_Request const handle = *request;
  if (auto const gather = requests().gathers.find(handle); gather != requests().gathers.end()) {
    auto const messages = std::move(gather->second->messages);
    requests().gathers.erase(gather);
    for (MPI_Request message : messages) {
      MPI_Wait(&message, MPI_STATUS_IGNORE);
    }
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
  }
  int const code = PMPI_Wait(request, status);
  requests().ended.erase(handle);
  return code;
}

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  if (auto const gather = requests().gathers.find(*request); gather != requests().gathers.end()) {
    *done = has_ended(*gather->second) ? 1 : 0;
    return *done == 1 ? MPI_Wait(request, status) : MPI_SUCCESS;
  }
  auto const found = requests().ended.find(*request);
  if (found == requests().ended.end()) {
    return PMPI_Test(request, done, status);
  }
  *done = found->second ? 1 : 0;
  return found->second ? MPI_Wait(request, status) : MPI_SUCCESS;
}

}  // extern "C"
