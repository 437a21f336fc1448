#pragma once

#include <mpi.h>

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <exception>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>

#include "elements.hpp"

namespace heddle {

/// The other end of a message.
struct MessagePeer {
  MPI_Comm handle;
  int rank;
  int tag;
};

/// Limits that are the same on both ends of a message.
struct MessageRules {
  std::int64_t elements_per_call;
  std::int64_t elements_while_computing;  ///< of reductions that progress while ranks compute
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
  /// The tensors that hold the bytes.
  using Kept = boost::container::small_vector<Tensor, 3>;

  /// A transfer without requests. `group` owns the MPI communicator; `verb` names errors.
  MpiTransfer(std::shared_ptr<void const> group, char const* verb, Kept kept);
  ~MpiTransfer() override;
  MpiTransfer(MpiTransfer const&) = delete;
  MpiTransfer& operator=(MpiTransfer const&) = delete;

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
  /// A request for MPI to fill, in a non-blocking collective.
  MPI_Request* add_request();

 private:
  struct State;

  bool advance(bool blocking);
  void check_completed(MPI_Status const& status) const;
  void post_data(Tensor const& target);
  void check_header();

  std::unique_ptr<State> state_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace heddle
