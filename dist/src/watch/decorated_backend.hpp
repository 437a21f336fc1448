#pragma once

#include <heddle/core/parallel/communicator.hpp>
#include <memory>
#include <string>
#include <vector>

namespace heddle {

/// One call of a verb.
struct VerbCall {
  char const* name = "";      ///< a literal
  std::int64_t elements = 0;  ///< the same on every rank, except of all_to_all_rows, messages and split
  DType dtype = DType::int32;
  int detail = -1;  ///< the reduction, or a broadcast's root
  int peer = -1;    ///< of a message: the other rank in the group
  CommunicatorBackend::Counts counts = {};
};

/// A group under a name for messages, with the ranks of its members in the world.
struct NamedGroup {
  std::string name;
  std::vector<int> members;
};

/// The group of all ranks.
NamedGroup world_group(CommunicatorBackend const& world);
/// The group `part`, which was split off a group of which this rank is rank `world_rank` in the world. Collective over
/// `part`.
NamedGroup group_of(CommunicatorBackend& part, int world_rank, std::string const& name);

/// A backend around another one: does something before and after each verb, also of the groups that are split off.
class DecoratedBackend : public CommunicatorBackend {
 public:
  explicit DecoratedBackend(std::shared_ptr<CommunicatorBackend> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  bool reads(MemorySpace space) const override { return inner_->reads(space); }
  void all_reduce(Tensor const& tensor, ReduceOp op) override;
  void reduce_scatter(Tensor const& input, Tensor const& output, ReduceOp op) override;
  void reduce_scatter_uneven(Tensor const& input, Tensor const& output, Counts counts) override;
  void all_gather(Tensor const& input, Tensor const& output) override;
  void all_gather_uneven(Tensor const& input, Tensor const& output, Counts counts) override;
  void all_to_all(Tensor const& input, Tensor const& output) override;
  void all_to_all_uneven(Tensor const& input, Counts send_counts, Tensor const& output, Counts receive_counts) override;
  void broadcast(Tensor const& tensor, int root) override;
  void receive(Tensor const& tensor, int source, int tag) override;
  void barrier() override;
  std::unique_ptr<TransferBackend> start_send(Tensor const& tensor, int destination, int tag) override;
  std::unique_ptr<TransferBackend> start_receive(Tensor const& tensor, int source, int tag) override;
  std::unique_ptr<TransferBackend> start_all_gather(Tensor const& input, Tensor const& output) override;
  std::unique_ptr<TransferBackend> start_all_reduce(Tensor const& tensor, ReduceOp op) override;
  std::unique_ptr<TransferBackend> start_reduce_scatter(Tensor const& input, Tensor const& output,
                                                        ReduceOp op) override;
  std::shared_ptr<CommunicatorBackend> split(int color, int key, std::string const& name) override;

 protected:
  CommunicatorBackend& inner() const { return *inner_; }
  virtual void before(VerbCall const& call) = 0;
  /// Called after `before` of all_to_all_rows, with the elements for and from each rank.
  virtual void before_exchange(Counts /*send*/, Counts /*receive*/) {}
  /// Called also if the verb throws.
  virtual void after() noexcept = 0;
  /// Called between before and after of a verb that has been started.
  virtual std::unique_ptr<TransferBackend> around(VerbCall const& call, std::unique_ptr<TransferBackend> transfer) = 0;
  /// Decorates a group that was split off this one.
  virtual std::shared_ptr<CommunicatorBackend> decorate(std::shared_ptr<CommunicatorBackend> part, int color,
                                                        std::string const& name) = 0;

 private:
  template <class Action>
  auto run(VerbCall const& call, Action const& action);
  template <class Action>
  std::unique_ptr<TransferBackend> start(VerbCall const& call, Action const& action);

  std::shared_ptr<CommunicatorBackend> inner_;
};

}  // namespace heddle
