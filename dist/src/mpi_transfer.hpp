#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>
#include <heddle/core/communicator.hpp>
#include <memory>
#include <vector>

#include "mpi_elements.hpp"

namespace heddle {

/// Where a message comes from or goes to.
struct MessagePeer {
  MPI_Comm handle;
  int rank;
  int tag;
};

/// Requests under way, with what their bytes live in. They are completed in the order in which they were added.
class MpiTransfer final : public TransferBackend {
 public:
  /// Nothing under way yet. `group` is what owns the MPI communicator; `verb` names errors.
  MpiTransfer(std::shared_ptr<void const> group, char const* verb, std::vector<Tensor> kept);
  ~MpiTransfer() override;
  MpiTransfer(MpiTransfer const&) = delete;
  MpiTransfer& operator=(MpiTransfer const&) = delete;

  bool progress() override;
  void wait() override;

  /// A message: a header with its dtype and count goes ahead, since MPI itself accepts a shorter message and any type
  /// of element. The whole tensor, in pieces.
  void send_message(Tensor const& tensor, MessagePeer const& peer, std::int64_t elements_per_call);
  /// Its receiver, who posts everything at once: the messages of one peer and tag can not mix. A message of another
  /// dtype or count is taken off the wire all the same, and throws.
  void receive_message(Tensor const& tensor, MessagePeer const& peer, std::int64_t elements_per_call);

  /// Elements alone, between ranks that have agreed on what goes where; a piece of another count throws.
  void send_piece(void const* begin, int count, DType dtype, MessagePeer const& peer);
  void receive_piece(void* begin, int count, DType dtype, MessagePeer const& peer);
  /// For MPI to fill, in a non-blocking collective.
  MPI_Request* add_request();

 private:
  struct State;

  bool advance(bool blocking);
  void check_completed(MPI_Status const& status) const;
  void check_header();
  void take_mismatched(std::int64_t elements, DType dtype);

  std::unique_ptr<State> state_;
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace heddle
