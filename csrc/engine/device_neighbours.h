// What the graphs of one pool of a device know of one another. Guarded by the pool's replay lock.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace airgraph {

class DeviceLaunch;

// All that one stream does from now on comes after all that another was given before.
void put_in_order(const c10::Stream& first, const c10::Stream& second);

// The pool's memory is its graphs' in turn: the outputs of one lie where the next may write.
class DeviceNeighbours {
 public:
  // From now on what the current stream does comes after the work of the pool's last calls, and after what the streams
  // that they came on were given meanwhile: their callers may read outputs there.
  void follow_last_calls(c10::Device device);

  // What those streams do from now on comes after what the current stream was given: outputs have been moved.
  void let_last_callers_follow() const;

  // The last thing that a call does. A stream that its owner may destroy is not touched later: what it has been given
  // by now is remembered in its place.
  void finish_call(c10::Device device);

  // Whether a call now would become part of a graph that is being captured: it is, or a stream that it has to wait for.
  bool meets_a_capture(c10::Device device) const;

  // What graphs captured before would write is somebody else's by now; those captured later know it.
  void outdate() { ++age_; }
  uint64_t age() const { return age_; }

  // Makes all outputs that callers hold independent of the pool, whatever the policy. They are copied on the stream of
  // the last replay, and the current stream comes after that.
  void give_away_held();

  // Takes the place of the last replay; null: of none. Returns which that was.
  DeviceLaunch* take_turn(DeviceLaunch* launch);
  DeviceLaunch* last() const { return last_; }

  // A launch is gone.
  void forget(DeviceLaunch* launch);

  // A launch has memory of buffers with callers; until it says otherwise.
  void add_lender(DeviceLaunch* launch);
  void remove_lender(DeviceLaunch* launch);
  const std::vector<DeviceLaunch*>& lenders() const { return lenders_; }

  // Whether calls come from several threads: then a reader in one of them cannot be seen from a call in another.
  bool has_unseen_readers() const { return threads_.size() > 1; }

 private:
  template <class Place>
  struct Caller {
    Place place;
    uint64_t call;  // its last one
    // Of a stream that may be gone: what it had been given by the end of that call.
    std::shared_ptr<c10::Event> done;
  };

  DeviceLaunch* last_ = nullptr;  // replayed last, so it may have outputs with the caller
  std::vector<DeviceLaunch*> lenders_;
  uint64_t calls_ = 0;
  uint64_t age_ = 0;
  // Where the last calls came from, the very last in front.
  std::vector<Caller<c10::Stream>> streams_;
  std::vector<Caller<std::thread::id>> threads_;
};

}  // namespace airgraph
