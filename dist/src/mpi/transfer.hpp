#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <vector>

#include "elements.hpp"

namespace heddle {

/// Where a message comes from or goes to.
struct MessagePeer {
  MPI_Comm handle;
  int rank;
  int tag;
};

/// Limits that are the same on both ends of a message.
struct MessageRules {
  std::int64_t elements_per_call;
  int largest_tag;
};

/// Tags of messages are below this one, which is the group's own. The tags of its reductions follow, two for each that
/// may be under way at once, then those of messages' elements.
inline constexpr int reserved_tag = 8192;
inline constexpr int reduction_tags = 2048;
inline constexpr int first_element_tag = reserved_tag + 1 + 2 * reduction_tags;

/// Requests under way, with the tensors that their bytes lie in. They are completed in the order in which they were
/// added.
class MpiTransfer final : public TransferBackend {
 public:
  /// Nothing under way yet. `group` owns the MPI communicator; `verb` names errors.
  MpiTransfer(std::shared_ptr<void const> group, char const* verb, std::vector<Tensor> kept);
  ~MpiTransfer() override;
  MpiTransfer(MpiTransfer const&) = delete;
  MpiTransfer& operator=(MpiTransfer const&) = delete;

  bool progress() override;
  void wait() override;

  /// A message: a header with its dtype and count goes ahead with the peer's tag, since MPI itself accepts a shorter
  /// message and any type of element. The elements follow, in pieces, with a tag that dtype and count are part of.
  void send_message(Tensor const& tensor, MessagePeer const& peer, MessageRules const& rules);
  /// Its receiver. A message of another dtype or count is taken off the wire all the same, and throws. With
  /// `post_at_once` the elements' place is known to MPI from the start, so that the sender never waits for this rank's
  /// progress; a wrong message may then mix with later ones from the same peer. Without, the header comes first.
  void receive_message(Tensor const& tensor, MessagePeer const& peer, MessageRules const& rules, bool post_at_once);

  /// Elements alone, between ranks that have agreed on what goes where; a piece of another count throws.
  void send_piece(void const* begin, int count, DType dtype, MessagePeer const& peer);
  void receive_piece(void* begin, int count, DType dtype, MessagePeer const& peer);
  /// For MPI to fill, in a non-blocking collective.
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
