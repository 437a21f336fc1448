#pragma once

#include <mpi.h>

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <exception>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>

#include "call.hpp"

namespace heddle {

struct MessagePeer {
  MPI_Comm handle;
  int rank;
  int tag;
};

/// Elements for or from one rank.
struct MessageBlock {
  std::byte* begin = nullptr;
  std::int64_t count = 0;
};

/// Limits that are the same on both ends of a message.
struct MessageRules {
  std::int64_t elements_per_call;
  std::int64_t elements_while_computing;  ///< limit of reductions that progress while ranks compute
  int largest_tag;
};

/// The tags of messages are below this one, which the group uses itself. The tags of its reductions follow, two for
/// each that may be in flight, then those of messages' elements.
inline constexpr int reserved_tag = 8192;
inline constexpr int reduction_tags = 2048;
inline constexpr int first_element_tag = reserved_tag + 1 + 2 * reduction_tags;

/// Requests in flight, with the tensors that hold their bytes. They are completed in the order in which they were
/// added.
class MpiTransfer final : public TransferBackend {
 public:
  using Kept = boost::container::small_vector<Tensor, 3>;

  /// A transfer without requests. `group` owns the MPI communicator; `collective` names errors.
  MpiTransfer(std::shared_ptr<void const> group, char const* collective, Kept kept);
  ~MpiTransfer() override;

  bool progress() override;
  void wait() override;

  /// Sends a message: first a header with its dtype and count, with the peer's tag, since MPI itself accepts a shorter
  /// message and any type of element. The elements follow, in pieces, with a tag that depends on dtype and count.
  void send_message(Tensor const& tensor, MessagePeer const& peer, MessageRules const& rules);
  /// Receives a message. One of another dtype or count is received, too, and then throws. With `post_at_once` MPI
  /// knows the elements' buffer from the start, so that the sender never waits for this rank's progress; a wrong
  /// message may then mix with later ones from the same peer. Without it, the header is received first.
  void receive_message(Tensor const& tensor, MessagePeer const& peer, MessageRules const& rules, bool post_at_once);

  /// Elements without header, between ranks that have agreed on them; a piece of another count throws.
  void send_piece(void const* begin, int count, DType dtype, MessagePeer const& peer);
  void receive_piece(void* begin, int count, DType dtype, MessagePeer const& peer);
  /// The elements that this rank and each other one of a group send each other.
  struct Exchange {
    MPI_Comm handle;
    int rank;
    int ranks;
    int tag;
    DType dtype;
    std::int64_t elements_per_call;
    bool sends_empty = false;  ///< a block without elements is a message, too, so that a wrong count is noticed
  };
  /// Posts `incoming(rank)` of each other rank, then sends `outgoing(rank)` to each.
  template <class Incoming, class Outgoing>
  void exchange(Exchange const& group, Incoming const& incoming, Outgoing const& outgoing) {
    for (int step = 1; step < group.ranks; ++step) {
      int const source = (group.rank + group.ranks - step) % group.ranks;
      for_each_message(group, incoming(source), [&](std::byte* begin, int count) {
        receive_piece(begin, count, group.dtype, {group.handle, source, group.tag});
      });
    }
    for (int step = 1; step < group.ranks; ++step) {
      int const destination = (group.rank + step) % group.ranks;
      for_each_message(group, outgoing(destination), [&](std::byte const* begin, int count) {
        send_piece(begin, count, group.dtype, {group.handle, destination, group.tag});
      });
    }
  }
  /// A request for MPI to fill, in a non-blocking collective.
  MPI_Request* add_request();

 private:
  struct State;

  template <class Move>
  static void for_each_message(Exchange const& group, MessageBlock const& block, Move const& move) {
    auto const width = static_cast<std::int64_t>(size_of(group.dtype));
    for_each_piece(block.count, group.elements_per_call,
                   [&](std::int64_t begin, int count) { move(block.begin + begin * width, count); });
    if (block.count == 0 && group.sends_empty) {
      move(block.begin, 0);
    }
  }
  bool advance(bool blocking);
  void check_completed(MPI_Status const& status) const;
  void post_data(Tensor const& target);
  void check_header();

  std::unique_ptr<State> state_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace heddle
