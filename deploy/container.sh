#!/bin/sh
# Production in a container, as `supervisor = { kind = "command", … }` asks for it:
#   container.sh start|stop|status NAME       for podman: ENGINE=podman container.sh …
# A restart policy does not undo `stop`; `start` does no harm when it runs already.
engine=${ENGINE:-docker}
case "$1" in
  start | stop) exec "$engine" "$1" "$2" ;;
  status)
    case "$("$engine" inspect --format '{{.State.Running}}' "$2")" in
      true) exit 0 ;;
      false) exit 3 ;;
      *) exit 1 ;; # not known: nothing may be stopped
    esac
    ;;
  *) echo "usage: $0 start|stop|status NAME" >&2 && exit 2 ;;
esac
