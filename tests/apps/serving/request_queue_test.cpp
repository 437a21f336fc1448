#include "serving/workers/request_queue.hpp"

#include "serving/workers/worker_message.hpp"
#include "test.hpp"

namespace heddle {
namespace {

struct NoReceiver final : TranslationReceiver {
  void growing(std::size_t, std::string const&) override {}
  void finished(std::size_t, std::string) override {}
  void failed(HttpError const&) override {}
};

class RequestQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<ServedRequest> request(std::vector<std::string> texts) {
    return std::make_shared<ServedRequest>(TranslationRequest{.lines = std::move(texts)}, receiver_);
  }
  /// All texts in the order in which the queue gives them.
  std::string order() {
    std::string texts;
    while (auto const next = queue_.next()) {
      texts += next->text() + " ";
    }
    return texts;
  }

  std::shared_ptr<NoReceiver> receiver_ = std::make_shared<NoReceiver>();
  RequestQueue queue_{6};
};

TEST_F(RequestQueueTest, TakesOneTextOfEachRequestInTurnTheLongestFirst) {
  queue_.add(request({"1", "333", "22", "2b"}));
  queue_.add(request({"x"}));
  EXPECT_EQ(queue_.size(), 5);
  EXPECT_EQ(order(), "333 x 22 2b 1 ");
  EXPECT_EQ(queue_.size(), 0);
}

TEST_F(RequestQueueTest, IsBounded) {
  queue_.add(request({"a", "b", "c", "d"}));
  try {
    queue_.add(request({"e", "f", "g"}));
    FAIL() << "seven texts in a queue of six";
  } catch (HttpError const& error) {
    EXPECT_EQ(error.status, 429);
  }
  queue_.add(request({"e", "f"}));
  EXPECT_EQ(queue_.size(), 6);
  queue_.next();
  queue_.add(request({"g"}));
  queue_.add(request({}));
  EXPECT_EQ(queue_.size(), 6);
}

TEST_F(RequestQueueTest, LeavesOutWhatNobodyReceives) {
  auto const gone = request({"a", "b", "c"});
  queue_.add(gone);
  queue_.add(request({"x"}));
  gone->receiver.reset();
  EXPECT_EQ(order(), "x ");
  EXPECT_EQ(queue_.size(), 0);
  auto const dropped = request({"a", "b"});
  queue_.add(dropped);
  queue_.drop(*dropped);
  EXPECT_EQ(queue_.size(), 0);
  EXPECT_EQ(order(), "");
}

TEST(WorkerMessageTest, IsTakenOutOnlyWhole) {
  std::string const bytes =
      to_bytes(WorkerMessage::Kind::finished, 7, "{}") + to_bytes(WorkerMessage::Kind::alive, 0, "");
  std::string received;
  std::vector<WorkerMessage> messages;
  for (char const byte : bytes) {
    received += byte;
    while (auto message = take_message(received)) {
      messages.push_back(std::move(*message));
    }
  }
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0].kind, WorkerMessage::Kind::finished);
  EXPECT_EQ(messages[0].number, 7);
  EXPECT_EQ(messages[0].bytes, "{}");
  EXPECT_EQ(messages[1].kind, WorkerMessage::Kind::alive);
  EXPECT_TRUE(received.empty());
}

}  // namespace
}  // namespace heddle
